import assert from "node:assert/strict";
import { test } from "node:test";
import { shellJob, testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

test("E1 E8 E10 E14: a job goes through its phases to its end, and is cleaned", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  await stack.controller(foundation);
  const job = await stack.submit(foundation, shellJob("hello", [{ run: "echo one" }, { run: "echo two; echo err >&2" }]));
  await until("cleaned", async () => {
    const rows = await stack.rows<{ state: string }>("select state from holdfast.execution_attempts where state = 'cleaned'");
    return rows.length === 1;
  }, 20_000).catch(async (error) => {
    console.log(await stack.rows("select state, outcome, failure_code, failure_message from holdfast.execution_attempts"));
    console.log(await stack.rows("select state, uid, outcome, outcome_message, stop_unproven_reason, log_complete_at from holdfast.sandbox_attempts"));
    console.log(await stack.rows("select * from holdfast.leases"));
    throw error;
  });
  const [row] = await stack.rows<{ state: string; failure_message: string }>("select state, failure_message from holdfast.jobs where job_id = $1", [job]);
  assert.deepEqual(row, { state: "succeeded", failure_message: null });
  const logs = await stack.rows<{ stream: string; body: string }>("select stream, body from holdfast.log_chunks order by at");
  assert.deepEqual(logs.map((l) => l.stream + ":" + l.body), ["stdout:one\n", "stdout:two\n", "stderr:err\n"]);
  assert.deepEqual(await stack.rows("select * from holdfast.leases"), []);
});
