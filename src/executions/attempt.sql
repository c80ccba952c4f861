-- Execution attempts: one of at most two runs of a job. The model stands in migrations/0007_execution_attempts.sql.
-- Lock order: lease, job, attempt, sandbox, slot, change.

-- name: readAttemptByOrdinal :maybe
select attempt_id, plan_digest, deadline, state from holdfast.execution_attempts
where tenant_id = holdfast.current_tenant() and job_id = :job and ordinal = :ordinal;

-- name: insertAttempt :one
with clock as (select holdfast.ledger_now() as now)
insert into holdfast.execution_attempts
  (tenant_id, job_id, ordinal, attempt_id, pool, plan, plan_digest, started_at, deadline)
select holdfast.current_tenant(), :job, :ordinal, :attempt, :pool, :plan, :plan_digest, clock.now,
  clock.now + holdfast.microseconds(:deadline_us)
from clock
returning started_at, deadline;

-- name: insertPhases :exec
insert into holdfast.execution_phases (tenant_id, attempt_id, number, name, kind)
select holdfast.current_tenant(), :attempt, n, name, kind
from unnest(:names::text[], :kinds::text[]) with ordinality as phase(name, kind, n);

-- One of the pool's free slots, or no row (E2).
-- name: takeSlot :maybe
update holdfast.slots s
set tenant_id = holdfast.current_tenant(), attempt_id = :attempt, taken_at = holdfast.ledger_now()
where (s.pool, s.slot) = (
  select f.pool, f.slot from holdfast.slots f
  where f.pool = :pool and f.tenant_id is null
  order by f.slot limit 1 for update skip locked)
returning s.slot;

-- name: returnSlot :exec
update holdfast.slots set tenant_id = null, attempt_id = null, taken_at = null
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt;

-- name: readAttempt :maybe
select a.job_id, a.ordinal, a.attempt_id, a.state, a.plan, a.deadline, a.outcome,
  a.artifact_object is not null as "artifact_declared!",
  j.cancel_requested_at is not null as "cancel_requested!"
from holdfast.execution_attempts a
join holdfast.jobs j on j.tenant_id = a.tenant_id and j.job_id = a.job_id
where a.tenant_id = holdfast.current_tenant() and a.attempt_id = :attempt;

-- name: lockAttempt :maybe
select job_id, ordinal, state, deadline, plan, artifact_object, artifact_manifest
from holdfast.execution_attempts
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt
for no key update;

-- Whether its deadline has been reached, on a sample of its own after the lock.
-- name: readOverdue :one
select holdfast.ledger_now() >= deadline as "overdue!" from holdfast.execution_attempts
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt;

-- Every change of an attempt moves its version; the row is locked from here to commit.
-- name: touchAttempt :one
update holdfast.execution_attempts set resource_version = resource_version + 1
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt
returning job_id, ordinal, resource_version;

-- name: settleAttempt :one
-- null: failure_code, failure_message
update holdfast.execution_attempts
set state = 'finished', outcome = :outcome, failure_code = :failure_code, failure_message = :failure_message,
    finished_at = holdfast.ledger_now(),
    deadline_reached_at = case when holdfast.ledger_now() >= deadline then coalesce(deadline_reached_at, holdfast.ledger_now()) else deadline_reached_at end
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt and state = 'active'
returning finished_at as "finished_at!";

-- Completed attempts whose outside objects and partial artifacts are not proven gone yet (E14).
-- name: listExecutionsToClean :many
select attempt_id, job_id, ordinal, outcome, finished_at from holdfast.execution_attempts
where tenant_id = holdfast.current_tenant() and state = 'finished'
order by finished_at, attempt_id limit :limit;

-- What is left of it outside: sandboxes, and objects that no published artifact refers to (E14).
-- name: listLeftovers :many
select s.name as "name!" from holdfast.sandbox_attempts s
where s.tenant_id = holdfast.current_tenant() and s.owner_kind = 'execution' and s.owner_id = :attempt
  and s.state <> 'removed'
union all
select o.phase || '/' || o.name from holdfast.attempt_objects o
where o.tenant_id = holdfast.current_tenant() and o.attempt_id = :attempt and o.removed_at is null
  and not exists (select from holdfast.artifacts r where r.tenant_id = o.tenant_id and r.blob_key = o.blob_key);

-- name: markExecutionCleaned :exec
update holdfast.execution_attempts set state = 'cleaned', cleaned_at = holdfast.ledger_now()
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt and state = 'finished';
