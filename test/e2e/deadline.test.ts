import assert from "node:assert/strict";
import { test } from "node:test";
import { shellJob, testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

test("E4 E5: a job whose deadline passes while every controller is down is ended all the same, and fails with that reason", async (t) => {
  const stack = await testStack(t);
  const first = await stack.foundation("controller");
  const controller = await stack.controller(first);
  const job = await stack.submit(
    first,
    shellJob("late", [{ run: "trap '' TERM; while :; do echo beat; sleep 0.1; done" }], { deadline: "14s" }),
  );
  const running = await until("the phase runs", async () => {
    const [row] = await stack.rows<{ name: string; uid: string; deadline: string }>(
      "select name, uid, (extract(epoch from deadline) * 1e6)::bigint::text as deadline from holdfast.sandbox_attempts where state = 'released'",
    );
    return row;
  });
  const { signal } = new AbortController();
  const runtime = stack.runtime();
  // The record says that it may run before it does.
  await until("it runs", async () => (await runtime.observe(running, signal)).state === "running");
  await controller.close();

  // Nobody watches: the sandbox ends by itself, and the record still says that it runs.
  const ended = await until("the sandbox has ended", async () => {
    const seen = await runtime.observe(running, signal);
    return seen.state === "stopped" ? seen : null;
  });
  assert.equal(ended.outcome.kind, "deadline");
  let last = 0n;
  for await (const record of runtime.logs(running, { cursor: null, follow: false }, signal)) last = record.at;
  const leftMs = Number(BigInt(running.deadline) - last) / 1000;
  assert.ok(
    leftMs >= 0 && leftMs < 6000,
    `it ignored TERM, and was last heard ${leftMs} ms before its deadline`,
  );
  const [unseen] = await stack.rows<{ state: string }>("select state from holdfast.jobs where job_id = $1", [
    job,
  ]);
  assert.equal(unseen?.state, "running");

  await stack.controller(await stack.foundation("controller"));
  const failed = await until("the job has ended", async () => {
    const [row] = await stack.rows<{ state: string; failure_code: string; slots: string }>(
      `select state, failure_code, (select count(*) from holdfast.slots where tenant_id is not null)::text as slots
       from holdfast.jobs where job_id = $1 and finished_at is not null`,
      [job],
    );
    return row;
  });
  assert.deepEqual(failed, { state: "failed", failure_code: "deadline_exceeded", slots: "0" });
});
