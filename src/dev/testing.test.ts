import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { isHoldfastError } from "../core/errors.ts";
import { defineWork } from "../work/define.ts";
import { openWork, submit } from "../work/open.ts";
import { deadlineOnly } from "../work/policy.ts";
import { instant, seconds, startTestServer, type TestServer } from "./testing.ts";

const due = defineWork<null, null>({
  name: "due",
  version: "1",
  safety: "idempotent",
  policy: deadlineOnly(),
  run: () => null,
});

describe("W8 M7: what a program's own tests stand on", { concurrency: false }, () => {
  let server: TestServer;
  before(async () => {
    server = await startTestServer({ tenants: ["acme", "other"] });
  });
  after(() => server.stop());

  test("W8: the clock is the database's own until a test takes it, and stands still from then on", async () => {
    const now = async () =>
      (await server.query<{ now: string }>("select holdfast.work_execution_now()::text as now"))[0]?.now;
    assert.notEqual(await now(), await now());
    const clock = await server.controlClock(instant(1_900_000_000_000_001n));
    assert.deepEqual([await now(), await now()], Array(2).fill("2030-03-17 17:46:40.000001+00"));
    await clock.advance(1n);
    assert.equal(await now(), "2030-03-17 17:46:40.000002+00");
    const again = await server.controlClock(instant(1_900_000_000_000_000n));
    assert.equal(await now(), "2030-03-17 17:46:40+00", "the next test begins anew");
    assert.equal(again.now(), 1_900_000_000_000_000n);
  });

  test("W8: Work decides by it", async () => {
    const clock = await server.controlClock();
    const work = await openWork({ database: server.database, tenant: "acme" });
    try {
      await work.register(due);
      const deadline = instant(clock.now() + 1n);
      const { acceptedAt } = await submit(work, due, null, { deadline });
      assert.equal(acceptedAt, clock.now());
      await clock.set(deadline);
      await assert.rejects(submit(work, due, null, { deadline }), (error) =>
        isHoldfastError(error, "deadline_elapsed"),
      );
      await submit(work, due, null, { deadline: instant(deadline + seconds(1)), tenant: "other" });
    } finally {
      await work.close();
    }
  });

  test("M7: nothing of the server stays", async () => {
    // The folder of its socket.
    const folder = server.database.host;
    assert.ok(existsSync(folder));
    await server.stop();
    assert.equal(existsSync(folder), false);
  });
});
