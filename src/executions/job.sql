-- Jobs: the bounded waiting queue, and what can change about a job from outside. The states stand in job.ts,
-- the table in migrations/0005_jobs.sql. Each statement that gives a job gives the same columns.

-- Held until the transaction ends: of a tenant's admissions, one at a time counts the queue (E2, E12).
-- name: lockAdmission :exec
select pg_advisory_xact_lock(hashtextextended('holdfast admission ' || holdfast.current_tenant(), 0));

-- How many jobs wait, counted no further than to :queue_max. A statement of its own after the lock, whose
-- snapshot is then younger than the lock.
-- name: countQueued :one
select count(*)::integer as "queued!" from (
  select from holdfast.jobs j
  where j.tenant_id = holdfast.current_tenant() and j.state = 'queued'
  limit :queue_max
) waiting;

-- name: poolExists :one
select exists (select s.pool from holdfast.slots s where s.pool = :pool) as "known!";

-- A job with its spec, of which the same again is the same row, and the lease by which it waits. Enrolled from the
-- start: the direct claimant leaves it alone (E13).
-- name: insertJob :one
with lease as (
  insert into holdfast.leases (tenant_id, kind, resource_id, queue, priority, due_at, wake_at)
  values (holdfast.current_tenant(), 'admission', :job, :pool, :priority, :now, :now)
), spec as (
  insert into holdfast.job_specs (tenant_id, spec_digest, spec)
  values (holdfast.current_tenant(), :spec_digest, :spec)
  on conflict (tenant_id, spec_digest) do nothing
)
insert into holdfast.jobs as j (tenant_id, job_id, name, spec_digest, priority, labels, created_at, queued_at, enrolled_at)
values (holdfast.current_tenant(), :job, :name, :spec_digest, :priority, :labels, :now, :now, :now)
returning j.job_id, j.name, j.spec_digest, j.state, j.priority, j.labels, j.resource_version, j.created_at, j.queued_at,
  j.cancel_requested_at, j.cancel_reason, j.finished_at, j.failure_code, j.failure_message, 0 as "attempts!";

-- name: readJob :maybe
select j.job_id, j.name, j.spec_digest, j.state, j.priority, j.labels, j.resource_version, j.created_at, j.queued_at,
  j.cancel_requested_at, j.cancel_reason, j.finished_at, j.failure_code, j.failure_message, (
    select count(*)::integer from holdfast.execution_attempts a
    where a.tenant_id = j.tenant_id and a.job_id = j.job_id) as "attempts!"
from holdfast.jobs j
where j.tenant_id = holdfast.current_tenant() and j.job_id = :job;

-- Whoever needs its lease too locks that first.
-- name: lockJob :maybe
select j.job_id, j.name, j.spec_digest, j.state, j.priority, j.labels, j.resource_version, j.created_at, j.queued_at,
  j.cancel_requested_at, j.cancel_reason, j.finished_at, j.failure_code, j.failure_message, (
    select count(*)::integer from holdfast.execution_attempts a
    where a.tenant_id = j.tenant_id and a.job_id = j.job_id) as "attempts!"
from holdfast.jobs j
where j.tenant_id = holdfast.current_tenant() and j.job_id = :job
for no key update of j;

-- The trace of the request that submitted it. What this transaction appends from here on belongs to it.
-- name: joinJobTrace :one
select nullif(set_config('holdfast.traceparent', coalesce(j.traceparent, ''), true), '') as traceparent
from holdfast.jobs j
where j.tenant_id = holdfast.current_tenant() and j.job_id = :job;

-- name: readJobSpec :maybe
select j.spec_digest, s.spec
from holdfast.jobs j
join holdfast.job_specs s on s.tenant_id = j.tenant_id and s.spec_digest = j.spec_digest
where j.tenant_id = holdfast.current_tenant() and j.job_id = :job;

-- Newest first, after the last of the page before. No states means all of them.
-- name: listJobs :many
-- null: name, after_created_at, after_job
select j.job_id, j.name, j.spec_digest, j.state, j.priority, j.labels, j.resource_version, j.created_at, j.queued_at,
  j.cancel_requested_at, j.cancel_reason, j.finished_at, j.failure_code, j.failure_message, (
    select count(*)::integer from holdfast.execution_attempts a
    where a.tenant_id = j.tenant_id and a.job_id = j.job_id) as "attempts!"
from holdfast.jobs j
where j.tenant_id = holdfast.current_tenant()
  and (cardinality(:states::text[]) = 0 or j.state = any (:states))
  and j.labels @> :labels
  and (:name::text is null or j.name = :name)
  and (:after_created_at::timestamptz is null or (j.created_at, j.job_id) < (:after_created_at, :after_job::uuid))
order by j.created_at desc, j.job_id desc
limit :limit;

-- name: setJobIntent :exec
update holdfast.jobs set labels = :labels, priority = :priority, resource_version = resource_version + 1
where tenant_id = holdfast.current_tenant() and job_id = :job;

-- A job that waits is cancelled at once. The time is of after the row's lock, here and below: the one of the
-- transaction's beginning could be before what was committed while it waited.
-- name: cancelQueuedJob :exec
with clock as (select holdfast.ledger_now() as now)
update holdfast.jobs
set state = 'cancelled', cancel_requested_at = clock.now, cancel_reason = :reason, finished_at = clock.now,
    resource_version = resource_version + 1
from clock
where tenant_id = holdfast.current_tenant() and job_id = :job;

-- The controller of a running one sees this and stops it.
-- name: requestJobCancellation :exec
update holdfast.jobs
set cancel_requested_at = holdfast.ledger_now(), cancel_reason = :reason, resource_version = resource_version + 1
where tenant_id = holdfast.current_tenant() and job_id = :job;

-- An attempt that nobody holds just now becomes due at once; its holder sees the request without this.
-- name: hastenExecution :exec
update holdfast.leases l
set due_at = least(l.due_at, :now), wake_at = case when l.holder is null then least(l.due_at, :now) else l.wake_at end
where l.tenant_id = holdfast.current_tenant() and l.kind = 'execution' and l.resource_id in (
  select a.attempt_id from holdfast.execution_attempts a
  where a.tenant_id = holdfast.current_tenant() and a.job_id = :job and a.state = 'active');

-- Where its attempts took it: for controllers. The job's row is locked before.
-- name: moveJob :one
-- null: failure_code, failure_message
with clock as (select holdfast.ledger_now() as now)
update holdfast.jobs
set state = :state, failure_code = :failure_code, failure_message = :failure_message,
    queued_at = case when :state = 'queued' then clock.now else queued_at end,
    finished_at = case when :state in ('queued', 'running') then null else clock.now end,
    resource_version = resource_version + 1
from clock
where tenant_id = holdfast.current_tenant() and job_id = :job
returning queued_at;
