import assert from "node:assert/strict";
import { test } from "node:test";
import { shellJob, testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

test("E1 E8 E10 E14: a job goes through its phases to its end, and is cleaned", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  await stack.controller(foundation);
  const { client } = await stack.gateway(foundation);
  const job = await stack.submit(
    foundation,
    shellJob("hello", [{ run: "echo one" }, { run: "echo two; echo err >&2" }]),
  );
  const cleaned = () =>
    stack.rows<{ state: string }>("select state from holdfast.execution_attempts where state = 'cleaned'");
  await until("cleaned", async () => (await cleaned()).length === 1);
  const { state, failure } = await client.getJob(job);
  assert.deepEqual({ state, failure }, { state: "succeeded", failure: null });
  const lines: string[] = [];
  for await (const { stream, text } of client.logs(job)) lines.push(`${stream}: ${text}`);
  assert.deepEqual(lines, ["stdout: one", "stdout: two", "stderr: err"]);
  // What is left to attend to is the end of the log's retention.
  assert.deepEqual(await stack.rows("select kind, queue from holdfast.leases"), [
    { kind: "retention", queue: "log" },
  ]);
});
