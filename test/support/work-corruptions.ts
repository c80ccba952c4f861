import type { Corruption } from "./corruptions.ts";

const drop = (table: string, constraint: string) =>
  `alter table holdfast.${table} drop constraint ${constraint}`;
const change = (check: string, sql: string): Corruption => ({ check, sql });
const update = (table: string, check: string, set: string): Corruption =>
  change(check, `update holdfast.${table} set ${set}`);
const closed = "where execution_admission_closed_at is not null";

/** One way to break each invariant of Work, on the store of `liveThroughWork`. */
export const workCorruptions: readonly Corruption[] = [
  change("workIsLiveOrFinished", "delete from holdfast.leases_work where work_state = 'pending'"),
  change("workIsLiveOrFinished", "delete from holdfast.work_history where state = 'succeeded'"),
  change("workIsLiveOrFinished", "delete from holdfast.work_items"),
  change(
    "workIsLiveOrFinished",
    `insert into holdfast.work_history (tenant_id, work_id, state, attempts, finished_at)
     select tenant_id, resource_id, 'succeeded', 0, now() from holdfast.leases_work where work_state = 'pending'`,
  ),
  update("leases_work", "workWaitsInItsLane", "queue = '999.mail' where work_state = 'pending'"),
  update("work_items", "workWaitsInItsLane", "discovery_hint = '1.elsewhere'"),
  update("leases_work", "workAttemptsAreOnRecord", "attempt = attempt + 1 where work_state = 'retry_wait'"),
  update("work_history", "workAttemptsAreOnRecord", "attempts = 9 where state = 'failed'"),
  change("workAttemptsAreOnRecord", "delete from holdfast.work_attempts where outcome = 'unknown'"),
  update("leases_work", "permitHasItsHolder", "permit_admitted_at = null where work_state = 'permitted'"),
  update(
    "leases_work",
    "permitHasItsHolder",
    "wake_at = renew_until + interval '1 s' where work_state = 'permitted'",
  ),
  update("leases_work", "permitHasItsHolder", "permit_admitted_at = now() where work_state = 'pending'"),
  change(
    "permitHasItsHolder",
    `${drop("leases_work", "leases_work_permit")}; update holdfast.leases_work set holder = null, wake_at = due_at where work_state = 'permitted'`,
  ),
  change("historyAgreesWithItsAttempts", "delete from holdfast.work_cancels"),
  update(
    "work_history",
    "historyAgreesWithItsAttempts",
    "state = 'succeeded' where state like '%after_cancel%'",
  ),
  update("work_proofs", "historyAgreesWithItsAttempts", "verdict = 'not_applied' where verdict = 'applied'"),
  change(
    "historyAgreesWithItsAttempts",
    `delete from holdfast.work_proofs where verdict = 'applied';
     update holdfast.work_history set state = 'failed', failure_code = 'no' where epoch in (
       select epoch from holdfast.work_attempts where outcome = 'unknown')`,
  ),
  change("suspendedHasItsReason", "delete from holdfast.work_suspensions where reason = 'operator'"),
  update(
    "work_suspensions",
    "suspendedHasItsReason",
    "ended_at = null, ending = null where ending = 'requeued'",
  ),
  update("work_items", "closureIsOfItsBound", `execution_admission_closed_at = accepted_at ${closed}`),
  change(
    "closureIsOfItsBound",
    `${drop("work_items", "work_items_deadline_reached")};
     update holdfast.work_items set execution_deadline_reached_at = accepted_at where execution_not_after is not null`,
  ),
  change(
    "closureIsOfItsBound",
    `${drop("work_items", "work_items_admission_closed")};
     update holdfast.work_items set execution_admission_closed_reason = null ${closed}`,
  ),
  update("work_history", "admittedInItsTime", "permit_admitted_at = permit_admitted_at - interval '1 h'"),
  update("work_attempts", "admittedInItsTime", "permit_admitted_at = permit_admitted_at + interval '1 h'"),
  update(
    "leases_work",
    "admittedInItsTime",
    "permit_admitted_at = now() - interval '1 day' where work_state = 'permitted'",
  ),
  update("work_proofs", "proofIsOfAnUnknown", "epoch = epoch + 100000"),
  update("work_attempts", "proofIsOfAnUnknown", "outcome = 'returned' where outcome = 'unknown'"),
  change("lateResultSettledNothing", "delete from holdfast.work_attempts where outcome = 'unknown'"),
];
