import assert from "node:assert/strict";
import { after, test } from "node:test";
import { formatInstant, instant, seconds } from "../../src/core/time.ts";
import type { WorkDetail } from "../../src/wire/work.ts";
import { openWorkApi } from "../support/work-api.ts";

const api = await openWorkApi({ after });
const { bench, clock } = api;
const { a, call, kernel } = bench;
const detail = async (id: string) => (await api.get(id)).json<WorkDetail>();

test("W12 W4 W6 W11: an inspection tells each planned attempt against what happened, and every fact but the payload", async () => {
  const deadline = formatInstant(instant(clock.now() + seconds(200)));
  const id = await api.submit({ deadline, key: "invoice-7", input: { private: "s3cret" } });
  const lost = await api.permit();
  assert.equal((await detail(id)).lease?.holder, lost.by);
  assert.equal(await api.lose(), "suspended");
  await api.done(lost, { type: "succeeded", result: '{"private":"s3cret"}' });
  const before = await api.get(id);
  assert.ok(!before.text.includes("s3cret"), "no payload");
  const suspended = before.json<WorkDetail>();
  assert.equal(before.headers.get("etag"), `"${suspended.resource_version}"`);
  assert.deepEqual(
    [suspended.state, suspended.outcome_unknown, suspended.suspended?.reason, suspended.key],
    ["suspended", true, "outcome_unknown", "invoice-7"],
  );
  assert.deepEqual(
    suspended.observations.map(({ reason, outcome, retention_policy }) => [
      reason,
      outcome,
      retention_policy,
    ]),
    [["expired", "succeeded", "a-year"]],
  );
  const resolved = await api.view(id, "resolve", {
    body: { verdict: "not_applied", note: "asked the bank" },
  });
  assert.deepEqual([resolved.state, resolved.suspended?.reason], ["suspended", "not_applied"]);
  await clock.advance(seconds(60));
  await api.view(id, "requeue");
  await api.done(await api.permit(), { type: "failed", code: "declined", message: "no money", final: false });
  await clock.advance(seconds(60));
  await api.done(await api.permit(), { type: "succeeded", result: "" });
  const end = await detail(id);
  const accepted = BigInt(Date.parse(end.accepted_at)) * 1_000n;
  assert.deepEqual(
    end.plan?.slots.map(({ attempt, offset_us, eligible_at, came }) => [
      attempt,
      offset_us,
      Date.parse(eligible_at) - Number(accepted / 1_000n),
      came,
    ]),
    [
      [1, "0", 0, "unknown"],
      [2, "60000000", 60_000, "failed"],
      [3, "120000000", 120_000, "succeeded"],
    ],
  );
  assert.deepEqual(
    end.attempt_log.map(({ attempt, outcome, failure, proof }) => [
      attempt,
      outcome,
      failure?.code ?? null,
      proof && [proof.verdict, proof.source, proof.by, proof.note],
    ]),
    [
      [1, "unknown", null, ["not_applied", "operator", "caller-1", "asked the bank"]],
      [2, "failed", "declined", null],
      [3, "succeeded", null, null],
    ],
  );
  assert.ok(
    end.attempt_log.every((one) => one.admitted_at !== null && one.ended_at !== null && one.epoch !== "0"),
  );
  assert.deepEqual(
    end.suspensions.map(({ reason, ending, ended_by }) => [reason, ending, ended_by]),
    [
      ["outcome_unknown", "proven", "caller-1"],
      ["not_applied", "requeued", "caller-1"],
    ],
  );
  assert.deepEqual([end.state, end.lease, end.deadline, end.attempts], ["succeeded", null, deadline, 3]);
  const payload = await call(a, "GET", `/v1/work/${id}/payload`);
  assert.deepEqual(payload.json(), {
    input: { private: "s3cret" },
    result: null,
    late_results: [{ observation_id: end.observations[0]?.id, result: { private: "s3cret" } }],
  });
});

/** Where an inspection tells what each column holds; null: what names the row itself, or its payload. */
const toldIn: Readonly<Record<string, readonly (readonly [column: string, path: string | null])[]>> = {
  work_items: [
    ["tenant_id", null],
    ["work_id", "id"],
    ["version_number", "version"],
    ["idempotency_key", "key"],
    ["fingerprint_schema", "fingerprint_schema"],
    ["fingerprint", "fingerprint"],
    ["input", null],
    ["provider_key", "provider_key"],
    ["circuit_key", "circuit_key"],
    ["queue", "queue"],
    ["priority", "priority"],
    ["accepted_at", "accepted_at"],
    ["due_at", "first_due_at"],
    ["attempts_max", "attempts_max"],
    ["retry_initial_microseconds", "retry.initial_us"],
    ["retry_longest_microseconds", "retry.longest_us"],
    ["elapsed_max_microseconds", "retry.elapsed_max_us"],
    ["lease_max_microseconds", "retry.lease_max_us"],
    ["traceparent", "traceparent"],
    ["execution_policy_schema", "execution_policy_schema"],
    ["attempt_plan_version", "plan.version"],
    ["attempt_plan_offsets", "plan.slots.0.offset_us"],
    ["maximum_circuit_microseconds", "plan.circuit_us"],
    ["execution_not_after", "deadline"],
    ["execution_deadline_reached_at", "deadline_reached_at"],
    ["execution_admission_closed_at", "admission_closed.at"],
    ["execution_admission_closed_reason", "admission_closed.reason"],
    ["discovery_hint", "discovery_hint"],
  ],
  work_attempts: [
    ["tenant_id", null],
    ["work_id", null],
    ["attempt", "attempt_log.0.attempt"],
    ["holder", "attempt_log.0.holder"],
    ["epoch", "attempt_log.0.epoch"],
    ["outcome", "attempt_log.0.outcome"],
    ["ended_at", "attempt_log.0.ended_at"],
    ["failure_code", "attempt_log.0.failure"],
    ["failure_message", "attempt_log.0.failure"],
    ["permit_admitted_at", "attempt_log.0.admitted_at"],
  ],
  work_history: [
    ["tenant_id", null],
    ["work_id", null],
    ["state", "state"],
    ["attempts", "attempts"],
    ["finished_at", "finished_at"],
    ["holder", "attempt_log.0.holder"],
    ["epoch", "attempt_log.0.epoch"],
    ["result", null],
    ["failure_code", "failure"],
    ["failure_message", "failure"],
    ["permit_admitted_at", "attempt_log.0.admitted_at"],
  ],
  work_observations: [
    ["tenant_id", null],
    ["observation_id", "observations.0.id"],
    ["work_id", null],
    ["attempt", "observations.0.attempt"],
    ["holder", "observations.0.holder"],
    ["epoch", "observations.0.epoch"],
    ["outcome", "observations.0.outcome"],
    ["reason", "observations.0.reason"],
    ["result", null],
    ["failure_code", "observations.0.failure"],
    ["failure_message", "observations.0.failure"],
    ["observed_at", "observations.0.at"],
    ["retention_policy", "observations.0.retention_policy"],
  ],
  work_proofs: [
    ["tenant_id", null],
    ["work_id", null],
    ["attempt", "attempt_log.0.attempt"],
    ["epoch", "attempt_log.0.epoch"],
    ["verdict", "attempt_log.0.proof.verdict"],
    ["source", "attempt_log.0.proof.source"],
    ["proven_by", "attempt_log.0.proof.by"],
    ["note", "attempt_log.0.proof.note"],
    ["proven_at", "attempt_log.0.proof.at"],
  ],
  work_suspensions: [
    ["tenant_id", null],
    ["work_id", null],
    ["suspended_at", "suspensions.0.since"],
    ["reason", "suspensions.0.reason"],
    ["suspended_by", "suspensions.0.by"],
    ["ended_at", "suspensions.0.ended_at"],
    ["ended_by", "suspensions.0.ended_by"],
    ["ending", "suspensions.0.ending"],
  ],
  work_cancels: [
    ["tenant_id", null],
    ["work_id", null],
    ["requested_at", "cancel.at"],
    ["requested_by", "cancel.by"],
    ["reason", "cancel.reason"],
  ],
  work_circuits: [
    ["tenant_id", null],
    ["circuit_key", "circuit_key"],
    ["failures", "circuit.failures"],
    ["opened_at", "circuit.opened_at"],
    ["probe_at", "circuit.probe_at"],
    ["probing", "circuit.probing"],
    ["probe_until", "circuit.probe_until"],
  ],
  leases_work: [
    ["tenant_id", null],
    ["kind", null],
    ["resource_id", null],
    ["queue", "queue"],
    ["priority", "priority"],
    ["due_at", "next_due_at"],
    ["wake_at", "lease.until"],
    ["holder", "lease.holder"],
    ["epoch", "lease.epoch"],
    ["work_state", "state"],
    ["attempt", "attempts"],
    ["renew_until", "lease.renewable_until"],
    ["permit_admitted_at", "lease.admitted_at"],
  ],
};

test("W12: no column of Work is left out of an inspection", async () => {
  const rows = await kernel.ask<{ table: string; column: string }>(
    `select c.relname as table, a.attname as column from pg_class c join pg_attribute a on a.attrelid = c.oid
     where c.relnamespace = 'holdfast'::regnamespace and a.attnum > 0 and not a.attisdropped and c.relname = any ($1)`,
    [Object.keys(toldIn)],
  );
  const known = Object.entries(toldIn).flatMap(([table, columns]) =>
    columns.map(([column]) => `${table}.${column}`),
  );
  assert.deepEqual(rows.map(({ table, column }) => `${table}.${column}`).toSorted(), known.toSorted());
  // One that runs, and one to which everything has happened.
  const live = await api.submit({ queue: "default" });
  const late = await api.permit();
  const running = await detail(live);
  await api.lose();
  await api.done(late, { type: "succeeded", result: "" });
  await kernel.ask(
    "insert into holdfast.work_circuits (tenant_id, circuit_key, failures) values ('tenant-a', 'bank', 1)",
  );
  const deadline = formatInstant(instant(clock.now() + seconds(40)));
  const end = await api.submit({ deadline, circuit_key: "bank" });
  const gone = await api.permit();
  await api.lose();
  await api.view(end, "cancel");
  await clock.advance(seconds(40));
  await api.done(gone, { type: "succeeded", result: "" });
  await api.view(end, "resolve", { body: { verdict: "applied", note: "seen" } });
  const ended = await detail(end);
  const at = (from: unknown, path: string): unknown =>
    path.split(".").reduce<unknown>((one, step) => (one as Record<string, unknown> | null)?.[step], from);
  for (const [table, columns] of Object.entries(toldIn)) {
    for (const [column, path] of columns) {
      if (path === null) continue;
      const found = table === "leases_work" ? at(running, path) : at(ended, path);
      assert.notEqual(found, undefined, `${table}.${column} is told in ${path}`);
    }
  }
  assert.deepEqual([ended.cancel?.by, ended.state], ["caller-1", "succeeded_after_cancel_requested"]);
});
