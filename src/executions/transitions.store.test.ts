import assert from "node:assert/strict";
import { after, test } from "node:test";
import { openAttempts } from "../../test/support/attempts.ts";
import { acceptedEdges, edgesOf } from "../../test/support/edges.ts";
import { attemptTransitions } from "./attempt.ts";
import { jobTransitions } from "./job.ts";
import { phaseTransitions } from "./phase.ts";

const bench = await openAttempts({ after });
const { job, attempt } = await bench.begin();
const statesOf = (table: object) => Object.keys(table);

test("jobs: the database accepts exactly the edges of the table", async () => {
  const edges = await acceptedEdges(bench.kernel, {
    table: "holdfast.jobs",
    where: `job_id = '${job}'`,
    states: statesOf(jobTransitions),
    beside: (state) =>
      [
        `finished_at = ${state === "queued" || state === "running" ? "null" : "now()"}`,
        `cancel_requested_at = ${state === "cancelled" ? "now()" : "null"}`,
        `cancel_reason = ${state === "cancelled" ? "'asked'" : "null"}`,
      ].join(", "),
  });
  assert.deepEqual(edges, edgesOf(jobTransitions));
});

test("attempts: the database accepts exactly the edges of the table", async () => {
  const edges = await acceptedEdges(bench.kernel, {
    table: "holdfast.execution_attempts",
    where: `attempt_id = '${attempt}'`,
    states: statesOf(attemptTransitions),
    beside: (state) =>
      [
        `outcome = ${state === "active" ? "null" : "'cancelled'"}`,
        `finished_at = ${state === "active" ? "null" : "'2026-01-01T00:00:00Z'"}`,
        `cleaned_at = ${state === "cleaned" ? "'2026-01-01T00:00:00Z'" : "null"}`,
      ].join(", "),
  });
  assert.deepEqual(edges, edgesOf(attemptTransitions));
});

test("phases: the database accepts exactly the edges of the table", async () => {
  // A phase succeeds only when what was released of it came to a good end.
  await bench.kernel.ask(
    `insert into holdfast.sandbox_attempts (tenant_id, sandbox_id, owner_kind, owner_id, step, ordinal, name, runtime, spec,
       spec_digest, deadline, state, uid, released_at, stopped_at, stop_proof, outcome, exit_code)
     select p.tenant_id, gen_random_uuid(), 'execution', p.attempt_id, p.name, 1, 'hf-ended', 'process', '{}',
       repeat('0', 64), now(), 'stopped', 'u', now(), now(), 'shown', 'exited', 0
     from holdfast.execution_phases p where p.attempt_id = $1 and p.number = 1`,
    [attempt],
  );
  const edges = await acceptedEdges(bench.kernel, {
    table: "holdfast.execution_phases",
    where: `attempt_id = '${attempt}' and number = 1`,
    states: statesOf(phaseTransitions),
    beside: (state) =>
      [
        "started_at = '2026-01-01T00:00:00Z'",
        `finished_at = ${state === "pending" || state === "running" ? "null" : "'2026-01-01T00:00:00Z'"}`,
        `failure_code = ${state === "failed" ? "'x'" : "null"}, failure_message = ${state === "failed" ? "'y'" : "null"}`,
      ].join(", "),
  });
  assert.deepEqual(edges, edgesOf(phaseTransitions));
});
