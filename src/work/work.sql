-- Work items: accepted, inspected, cancelled, settled by proof. The model stands in migrations/0011 and 0012.

-- For connections of any program, whose driver may read types in another way: everything but the flag is text.
-- name: submitWork :many
-- null: tenant, deployment_epoch, traceparent
select place::text as "place!", work_id::text as "work_id!", duplicate as "duplicate!",
  (extract(epoch from accepted_at) * 1000000)::bigint::text as "accepted_us!"
from holdfast.submit_work(:tenant, :deployment_epoch, :name, :version, :items, :traceparent) s order by s.place;

-- name: cancelWork :one
select holdfast.cancel_work(holdfast.current_tenant(), :work, :by, :reason) as "state?";

-- name: suspendWork :one
select holdfast.suspend_work(holdfast.current_tenant(), :work, :by) as "state!";

-- name: resumeWork :one
select holdfast.resume_work(holdfast.current_tenant(), :work, :by, :ending) as "state!";

-- name: proveWork :one
-- null: note, result, epoch
select holdfast.prove_work(:tenant, :work, :verdict, :source, :by, :note, :result, :epoch) as "state!";

-- name: suspendTenantWork :one
select holdfast.suspend_tenant_work(holdfast.current_tenant()) as "suspended!";

-- name: disableTenant :maybe
update holdfast.tenants set disabled_at = coalesce(disabled_at, holdfast.ledger_now())
where tenant_id = :tenant
returning disabled_at as "disabled_at!";

-- Every stored fact of one item but its payload, and what it is at.
-- name: readItem :maybe
select w.work_id, v.name, v.version, v.safety, w.idempotency_key, encode(w.fingerprint, 'hex') as "fingerprint!", w.fingerprint_schema,
  w.provider_key, w.circuit_key, w.queue, w.priority, w.accepted_at, w.due_at, w.attempts_max, w.retry_initial_microseconds,
  w.retry_longest_microseconds, w.elapsed_max_microseconds, w.lease_max_microseconds, w.execution_policy_schema,
  w.attempt_plan_version, w.attempt_plan_offsets, w.maximum_circuit_microseconds, w.execution_not_after,
  w.execution_deadline_reached_at, w.execution_admission_closed_at, w.execution_admission_closed_reason, w.discovery_hint, w.traceparent,
  holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after) as "cutoff!",
  coalesce(h.state, l.work_state) as "state!", coalesce(h.attempts, l.attempt, 0::smallint) as "attempts!",
  l.due_at as "next_due_at?", l.wake_at as "wake_at?", coalesce(l.holder, h.holder) as "holder?",
  coalesce(l.epoch, h.epoch) as "epoch?", l.renew_until as "renew_until?",
  coalesce(h.permit_admitted_at, l.permit_admitted_at) as "permit_admitted_at?",
  h.finished_at as "finished_at?", h.failure_code as "failure_code?", h.failure_message as "failure_message?"
from holdfast.work_items w
join holdfast.work_versions v on v.version_number = w.version_number
left join holdfast.leases_work l on l.tenant_id = w.tenant_id and l.kind = 'work' and l.resource_id = w.work_id
left join holdfast.work_history h on h.tenant_id = w.tenant_id and h.work_id = w.work_id
where w.tenant_id = holdfast.current_tenant() and w.work_id = :work;

-- name: readPayload :maybe
select w.input, h.result as "result?" from holdfast.work_items w
left join holdfast.work_history h on h.tenant_id = w.tenant_id and h.work_id = w.work_id
where w.tenant_id = holdfast.current_tenant() and w.work_id = :work;

-- name: readAttempts :many
select a.attempt, a.holder, a.epoch, a.outcome, a.permit_admitted_at, a.ended_at, a.failure_code, a.failure_message,
  p.verdict as "verdict?", p.source as "proven_through?", p.proven_by as "proven_by?", p.proven_at as "proven_at?", p.note as "note?"
from holdfast.work_attempts a
left join holdfast.work_proofs p on p.tenant_id = a.tenant_id and p.work_id = a.work_id and p.attempt = a.attempt and p.epoch = a.epoch
where a.tenant_id = holdfast.current_tenant() and a.work_id = :work
order by a.attempt, a.epoch;

-- name: readObservations :many
select observation_id, attempt, holder, epoch, outcome, reason, failure_code, failure_message, observed_at, retention_policy
from holdfast.work_observations
where tenant_id = holdfast.current_tenant() and work_id = :work order by observed_at, observation_id;

-- name: readSuspensions :many
select suspended_at, reason, suspended_by, ended_at, ended_by, ending from holdfast.work_suspensions
where tenant_id = holdfast.current_tenant() and work_id = :work order by suspended_at;

-- name: readCancel :maybe
select requested_at, requested_by, reason from holdfast.work_cancels
where tenant_id = holdfast.current_tenant() and work_id = :work;

-- Those out of their line, oldest first.
-- name: listSuspended :many
select s.work_id, s.suspended_at, s.reason, s.suspended_by from holdfast.work_suspensions s
where s.tenant_id = holdfast.current_tenant() and s.ended_at is null
order by s.suspended_at, s.work_id limit :limit;

-- Quarantined observations whose policy has ended. The row policy shows none that is younger than a day.
-- name: sweepObservations :exec
delete from holdfast.work_observations o
using (
  select x.tenant_id, x.observation_id
  from unnest(:policies::text[], :keeps_us::bigint[]) as p (name, keep)
  join holdfast.work_observations x on x.retention_policy = p.name
  where x.observed_at < holdfast.work_execution_now() - holdfast.microseconds(p.keep)
  limit :limit
) gone
where o.tenant_id = gone.tenant_id and o.observation_id = gone.observation_id;
