import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { workStand } from "../../test/support/work.ts";
import { isHoldfastError } from "../core/errors.ts";
import { seconds } from "../core/time.ts";
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

test("what declares no work is refused where it is declared, and not when it is registered or runs", () => {
  const declare = (changed: object) => () => {
    const { name, version, safety, policy, run } = note;
    defineWork({ name, version, safety, policy, run, ...changed } as never);
  };
  for (const [changed, words] of [
    [{ name: undefined }, /^work is named by/],
    [{ version: 1 }, /^a version is a text of/],
    [{ policy: undefined }, /^policy is no policy: give legacy\(\), deadlineOnly\(\) or planned\(\)$/],
    [{ policy: legacy }, /^policy is no policy/],
    [{ policy: { kind: "legacy" } }, /^policy is no policy/],
    [
      { safety: "safe" },
      /^safety is none of idempotent, provider_keyed, reconcile_before_retry, manual_resolution$/,
    ],
    [{ safety: undefined }, /^safety is none of/],
    [{ run: undefined }, /^run is no function/],
    [{ safety: "reconcile_before_retry" }, /^reconcile is no function/],
    [{ queue: "No Such" }, /^a queue is named by/],
    [{ input: { parse: () => 1 } }, /^input is no validator/],
    [{ input: 5 }, /^input is no validator/],
    [{ breaker: 5 }, /^a circuit opens/],
    [{ breaker: { failures: 1, probe: 5000 } }, /^a circuit is probed/],
  ] as const)
    assert.throws(declare(changed), refusedWith("invalid_request", words));
  // Null is nothing.
  declare({ queue: null, breaker: null, input: null, reconcile: null })();
  assert.throws(
    () => defineWork(undefined as never),
    refusedWith("invalid_request", /is no object; .* name, version/),
  );
});

test("what a worker can't be held to is refused with the option's name, before anything is started", async () => {
  // Whoever went on to the store would find none here.
  const work = { db: {}, doorbell: {} } as never;
  const refused = (options: unknown, words: RegExp) =>
    assert.rejects(createWorker(work, options as never), refusedWith("invalid_request", words));
  await refused(undefined, /is no object; it may have works, /);
  for (const [options, words] of [
    [{ works: undefined }, /^works is no array of one or more that defineWork has given$/],
    [{ works: note }, /^works is/],
    [{ works: [] }, /^works is/],
    [{ works: [note, { name: "note", version: "1" }] }, /^works is/],
    [{ concurrency: 0 }, /1 to 1000 handlers/],
    [{ concurrency: "5" }, /1 to 1000 handlers/],
    [{ queues: "lz" }, /^queues is no array of one or more names, each 1 to 40 of a-z/],
    [{ queues: [] }, /^queues is/],
    [{ queues: ["default", "No Such"] }, /^queues is/],
    [{ queues: [undefined] }, /^queues is/],
    [{ lease: 5 }, /^lease is no bigint of microseconds from a second to a day: use seconds\(\)$/],
    [{ lease: seconds(0) }, /^lease is/],
    [{ lease: seconds(0.999999) }, /^lease is/],
    [{ lease: seconds(86_401) }, /^lease is/],
    [{ grace: 5 }, /^grace is no bigint of microseconds from none to seven days: use seconds\(\)$/],
    [{ grace: seconds(-1) }, /^grace is/],
    [{ stallMs: -1 }, /^stallMs is no finite number of milliseconds above 0$/],
    [{ stallMs: 0 }, /^stallMs is/],
    [{ stallMs: Number.POSITIVE_INFINITY }, /^stallMs is/],
    [{ stallMs: "20" }, /^stallMs is/],
    [{ retention: "" }, /^retention is no name of 1 to 128 characters$/],
    [{ retention: "x".repeat(129) }, /^retention is/],
    [{ retention: "a\0" }, /^retention is/],
    [{ retention: 5 }, /^retention is/],
    [{ onMetric: 5 }, /^onMetric is no function$/],
    [{ onSettled: "log" }, /^onSettled is no function$/],
  ] as const)
    await refused({ works: [note], ...options }, words);
});

test("a database that is not named, or by no address, is refused as configuration, and nothing of it is repeated", async () => {
  for (const database of [undefined, null, "", "nope", 5, "postgres://user:s3cret@/"])
    await assert.rejects(
      openWork({ database: database as string }),
      (error) =>
        isHoldfastError(error, "invalid_configuration") &&
        error.message.startsWith("the database's address must ") &&
        !error.message.includes("s3cret"),
      String(database),
    );
});
