import { canonicalDigest } from "../core/canonical.ts";
import { formatInstant, type Instant } from "../core/time.ts";
import type { SuspensionReason, WorkDetail, WorkStateName, WorkVersionView, WorkView } from "../wire/work.ts";
import type { ListWorkRow, ReadCircuitRow } from "./inspect.sql.ts";
import type { ListVersionsRow } from "./version.sql.ts";
import type { Inspection } from "./work.store.ts";

/** Who waits in its line: for the others, the time at which a row is due says nothing. */
const waiting: ReadonlySet<string> = new Set(["pending", "retry_wait"]);

/** What a list says of an item, and what every command about one answers with. */
export function workView(row: ListWorkRow): WorkView {
  return {
    id: row.work_id,
    name: row.name,
    version: row.version,
    safety: row.safety,
    policy: policyOf(row),
    queue: row.queue,
    priority: row.priority,
    // Check constraints hold both columns to these.
    state: row.state as WorkStateName,
    attempts: row.attempts,
    attempts_max: row.attempts_max,
    accepted_at: formatInstant(row.accepted_at),
    next_due_at: waiting.has(row.state) ? timeOrNull(row.next_due_at) : null,
    cutoff_at: formatInstant(row.cutoff),
    deadline: timeOrNull(row.execution_not_after),
    finished_at: timeOrNull(row.finished_at),
    failure: failureOf(row),
    suspended:
      row.suspended_at === null || row.suspended_reason === null
        ? null
        : { reason: row.suspended_reason as SuspensionReason, since: formatInstant(row.suspended_at) },
    cancel_requested_at: timeOrNull(row.cancel_requested_at),
    outcome_unknown: row.unknown,
    resource_version: String(revisionOf(row)),
  };
}

/**
 * What `If-Match` is held to (G4). No counter is kept of an item, whose row the hot path does not touch: equal facts
 * are the same revision, and any command, attempt, closure or proof makes another. 60 bits of their digest.
 */
export function revisionOf(row: ListWorkRow): bigint {
  const facts = [
    row.state,
    row.attempts,
    row.epoch,
    row.next_due_at,
    row.finished_at,
    row.execution_deadline_reached_at,
    row.execution_admission_closed_at,
    row.suspended_at,
    row.suspended_reason,
    row.cancel_requested_at,
    row.unknown,
    row.proofs,
    row.observations,
  ];
  const digest = canonicalDigest([
    row.work_id,
    ...facts.map((fact) => (fact === null ? null : String(fact))),
  ]);
  return BigInt(`0x${digest.slice(0, 15)}`);
}

/** Every stored fact but the payload (W12), each planned attempt against what happened. */
export function workDetail(
  row: ListWorkRow,
  inspection: Inspection,
  circuit: ReadCircuitRow | undefined,
): WorkDetail {
  const { item, suspensions, cancel, observations } = inspection;
  return {
    ...workView(row),
    key: item.idempotency_key,
    fingerprint: item.fingerprint,
    fingerprint_schema: item.fingerprint_schema,
    provider_key: item.provider_key,
    circuit_key: item.circuit_key,
    discovery_hint: item.discovery_hint,
    traceparent: item.traceparent,
    first_due_at: formatInstant(item.due_at),
    execution_policy_schema: item.execution_policy_schema,
    retry: {
      initial_us: String(item.retry_initial_microseconds),
      longest_us: String(item.retry_longest_microseconds),
      elapsed_max_us: String(item.elapsed_max_microseconds),
      lease_max_us: String(item.lease_max_microseconds),
    },
    plan: planOf(inspection),
    deadline_reached_at: timeOrNull(item.execution_deadline_reached_at),
    admission_closed:
      item.execution_admission_closed_at === null
        ? null
        : {
            at: formatInstant(item.execution_admission_closed_at),
            reason: item.execution_admission_closed_reason ?? "",
          },
    lease: leaseOf(item),
    attempt_log: attemptLog(inspection),
    suspensions: suspensions.map((one) => ({
      since: formatInstant(one.suspended_at),
      reason: one.reason as SuspensionReason,
      by: one.suspended_by,
      ended_at: timeOrNull(one.ended_at),
      ended_by: one.ended_by,
      ending: one.ending,
    })),
    cancel:
      cancel === null
        ? null
        : { at: formatInstant(cancel.requested_at), by: cancel.requested_by, reason: cancel.reason },
    observations: observations.map((one) => ({
      id: one.observation_id,
      attempt: one.attempt,
      holder: one.holder,
      epoch: String(one.epoch),
      outcome: one.outcome,
      reason: one.reason,
      failure: failureOf(one),
      at: formatInstant(one.observed_at),
      retention_policy: one.retention_policy,
    })),
    circuit:
      circuit === undefined
        ? null
        : {
            failures: circuit.failures,
            opened_at: timeOrNull(circuit.opened_at),
            probe_at: timeOrNull(circuit.probe_at),
            probing: circuit.probing,
            probe_until: timeOrNull(circuit.probe_until),
          },
  };
}

function planOf({ item, plan }: Inspection): WorkDetail["plan"] {
  const { attempt_plan_version: version, attempt_plan_offsets: offsets } = item;
  if (version === null || offsets === null) return null;
  return {
    version,
    circuit_us: String(item.maximum_circuit_microseconds ?? 0n),
    slots: plan.map(({ attempt, eligibleAt, came }, place) => ({
      attempt,
      offset_us: String(offsets[place] ?? 0n),
      eligible_at: formatInstant(eligibleAt),
      came,
    })),
  };
}

function leaseOf(item: Inspection["item"]): WorkDetail["lease"] {
  const { holder, epoch, wake_at, renew_until, permit_admitted_at, finished_at } = item;
  if (finished_at !== null || holder === null || wake_at === null) return null;
  return {
    holder,
    epoch: String(epoch ?? 0n),
    until: formatInstant(wake_at),
    renewable_until: timeOrNull(renew_until),
    admitted_at: timeOrNull(permit_admitted_at),
  };
}

/** Those on record, and the one that runs, or with which it finished. */
function attemptLog({ item, attempts }: Inspection): WorkDetail["attempt_log"] {
  const log: WorkDetail["attempt_log"] = attempts.map((one) => ({
    attempt: one.attempt,
    holder: one.holder,
    epoch: String(one.epoch),
    outcome: one.outcome,
    admitted_at: timeOrNull(one.permit_admitted_at),
    ended_at: formatInstant(one.ended_at),
    failure: failureOf(one),
    proof:
      one.verdict === null || one.proven_at === null
        ? null
        : {
            verdict: one.verdict,
            source: one.proven_through ?? "",
            by: one.proven_by ?? "",
            at: formatInstant(one.proven_at),
            note: one.note,
          },
  }));
  const { holder, epoch, permit_admitted_at: admitted, finished_at: finished } = item;
  const known = attempts.some((one) => one.epoch === epoch && one.attempt === item.attempts);
  // A proof finished it, or nobody was let in.
  if (known || holder === null || admitted === null) return log;
  log.push({
    attempt: item.attempts,
    holder,
    epoch: String(epoch ?? 0n),
    outcome: finished === null ? "running" : item.state === "failed" ? "failed" : "succeeded",
    admitted_at: formatInstant(admitted),
    ended_at: timeOrNull(finished),
    failure: finished === null ? null : failureOf(item),
    proof: null,
  });
  return log;
}

export function versionView(row: ListVersionsRow): WorkVersionView {
  const { attempt_plan_version: plan, attempt_plan_offsets: offsets } = row;
  return {
    name: row.name,
    version: row.version,
    number: row.version_number,
    queue: row.queue,
    safety: row.safety,
    policy: policyOf(row),
    attempts_max: row.attempts_max,
    elapsed_max_us: String(row.elapsed_max_microseconds),
    lease_max_us: String(row.lease_max_microseconds),
    plan:
      plan === null || offsets === null
        ? null
        : {
            version: plan,
            offsets_us: offsets.map(String),
            circuit_us: String(row.maximum_circuit_microseconds ?? 0n),
          },
    registered_at: formatInstant(row.registered_at),
    retired_at: timeOrNull(row.retired_at),
    workers: Number(row.runners),
    waiting: row.waiting,
    suspended: row.suspended,
  };
}

function policyOf(row: {
  readonly execution_policy_schema: string | null;
  readonly attempt_plan_version: string | null;
}): WorkView["policy"] {
  if (row.execution_policy_schema === null) return "legacy";
  return row.attempt_plan_version === null ? "deadline" : "planned";
}

function failureOf(row: { readonly failure_code: string | null; readonly failure_message: string | null }) {
  return row.failure_code === null ? null : { code: row.failure_code, message: row.failure_message ?? "" };
}

const timeOrNull = (at: Instant | null) => (at === null ? null : formatInstant(at));
