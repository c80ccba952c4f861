import assert from "node:assert/strict";
import { test } from "node:test";
import { transition } from "../../src/core/postgres/transition.ts";
import { submitJob } from "../../src/executions/job.store.ts";
import { shellJob, testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

test("a request's trace context reaches what runs for it, and the changes on the way", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("both");
  await stack.controller(foundation);
  const { client } = await stack.gateway(foundation);
  const submission = shellJob("traced", [{ run: 'echo "trace=$TRACEPARENT"' }]);
  const scope = { role: "gateway", tenant: stack.tenant, name: "submit", traceparent } as const;
  const { job_id: job } = await transition(foundation.db, scope, (tx) =>
    submitJob(tx, { submission, queueMax: 10 }),
  );
  const lines: string[] = [];
  for await (const { text, stream } of client.logs(job, { follow: true })) {
    if (stream === "stdout") lines.push(text);
  }
  assert.deepEqual(lines, [`trace=${traceparent}`]);
  await until("its changes are there", async () => {
    const rows = await stack.rows<{ operation: string }>(
      "select operation from holdfast.resource_changes where root_id = $1 and traceparent = $2 order by change_id",
      [job, traceparent],
    );
    const found = new Set(rows.map(({ operation }) => operation));
    return ["job.submitted", "job.started", "attempt.started", "phase.started", "sandbox.planned"].every(
      (one) => found.has(one),
    );
  });
});
