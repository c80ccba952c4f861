import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { workStand } from "../../test/support/work.ts";
import { isHoldfastError } from "../core/errors.ts";
import { startPostgres } from "../dev/postgres/server.ts";
import type { ErrorCode } from "../wire/errors.ts";
import { defineWork } from "./define.ts";
import { openWork, submit } from "./open.ts";
import { legacy } from "./policy.ts";
import { createWorker } from "./worker.ts";

const refusedWith = (code: ErrorCode, words: RegExp) => (error: unknown) => {
  assert.ok(isHoldfastError(error, code), String(error));
  assert.match(error.detail, words);
  return true;
};
const note = defineWork<unknown, null>({
  name: "note",
  version: "1",
  safety: "idempotent",
  policy: legacy(),
  run: () => null,
});

test("M5: whoever may not play a role is told which one, when the handle is opened and when the worker starts", async (t) => {
  const { database, ask, worker } = await workStand(t);
  const login = `poor_${process.pid}`;
  const settings = { ...database.app, user: login, password: "x" };
  const open = (changed: Partial<typeof settings> = {}) =>
    openWork({
      database: { ...settings, ...changed },
      tenant: "acme",
      onError: (error) => errors.push(error),
    });
  const errors: unknown[] = [];
  await assert.rejects(
    open(),
    refusedWith("invalid_configuration", new RegExp(`"${login}".*make the login`)),
  );
  await ask(`create role ${login} login noinherit password 'x'`);
  await assert.rejects(
    open(),
    refusedWith("invalid_configuration", /to set role "holdfast_producer".*Grant it what it lacks/),
  );
  await assert.rejects(
    open({ database: "nowhere" }),
    refusedWith("invalid_configuration", /"nowhere".*create it/),
  );

  await ask(`grant holdfast_producer to ${login} with inherit false, set true`);
  const producer = await open();
  try {
    const may = refusedWith("invalid_configuration", /to set role "holdfast_worker"/);
    await assert.rejects(producer.register(note), may);
    await assert.rejects(createWorker(producer, { works: [note] }), may);
    await ask(`grant holdfast_worker to ${login} with inherit false, set true`);
    await assert.rejects(
      createWorker(producer, { works: [note] }),
      refusedWith("invalid_configuration", /to set role "holdfast_dispatcher"/),
    );
    // Submitting needs nothing else, and wakes the workers as from anywhere.
    await worker({ works: [note] });
    await submit(producer, note, 1);
    await until("it has run", async () => (await ask("select from holdfast.work_history")).length === 1);
  } finally {
    await producer.close();
    await ask(`drop role ${login}`);
  }
  assert.deepEqual(errors, []);
});

test("M5: where the roles or the schema are missing, it says what makes them", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "hf-bare-"));
  const server = await startPostgres({ directory, settings: { fsync: "off" } });
  t.after(async () => {
    await server.stop();
    await rm(directory, { recursive: true, force: true, maxRetries: 5 });
  });
  await assert.rejects(
    openWork({ database: server.connection }),
    refusedWith("schema_missing", /^role "holdfast_producer" does not exist: `holdfast schema roles` makes/),
  );
});
