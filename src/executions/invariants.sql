-- What is always true of jobs, attempts and artifacts. A row for each thing that is wrong, none when all is well.
-- Jobs that the direct claimant runs are its own business: only enrolled ones are looked at.

-- name: slotIsAnActiveAttempts :many
select coalesce(a.job_id || '/' || a.ordinal, s.pool || '/' || s.slot) as "resource!",
  case
    when s.slot is null then format('it is active and holds no slot of the pool %s', a.pool)
    when a.attempt_id is null then format('the attempt %s, which is not active, holds it since %s', s.attempt_id, s.taken_at)
    else format('it holds slot %s of the pool %s, but its pool is %s', s.slot, s.pool, a.pool) end as "problem!"
from (
  select t.pool, t.slot, t.attempt_id, t.taken_at from holdfast.slots t where t.tenant_id = holdfast.current_tenant()
) s
full join (
  select e.attempt_id, e.job_id, e.ordinal, e.pool from holdfast.execution_attempts e
  where e.tenant_id = holdfast.current_tenant() and e.state = 'active'
) a on a.attempt_id = s.attempt_id
where s.slot is null or a.attempt_id is null or s.pool <> a.pool
limit :limit;

-- name: attemptHasOneSlot :many
select s.attempt_id::text as "resource!",
  format('it holds %s slots: %s', count(*), string_agg(s.pool || '/' || s.slot, ', ')) as "problem!"
from holdfast.slots s
where s.tenant_id is not null
group by s.tenant_id, s.attempt_id having count(*) > 1
limit :limit;

-- name: slotHolderExists :many
select s.pool || '/' || s.slot as "resource!", format('the tenant %s, which does not exist, holds it', s.tenant_id) as "problem!"
from holdfast.slots s
where s.tenant_id is not null and not exists (select from holdfast.tenants t where t.tenant_id = s.tenant_id)
limit :limit;

-- name: ordinalsHaveNoGap :many
select a.job_id::text as "resource!",
  format('it has %s attempts, with the ordinals %s', count(*), string_agg(a.ordinal::text, ', ' order by a.ordinal)) as "problem!"
from holdfast.execution_attempts a
where a.tenant_id = holdfast.current_tenant()
group by a.job_id having min(a.ordinal) <> 1 or max(a.ordinal) <> count(*) or count(*) > 2
limit :limit;

-- name: attemptsFollowEachOther :many
select b.job_id || '/' || b.ordinal as "resource!",
  format('it started at %s, but the attempt before it is %s (%s) since %s', b.started_at, a.state,
    coalesce(a.outcome, 'no outcome'), a.finished_at) as "problem!"
from holdfast.execution_attempts b
join holdfast.execution_attempts a on a.tenant_id = b.tenant_id and a.job_id = b.job_id and a.ordinal = b.ordinal - 1
where b.tenant_id = holdfast.current_tenant()
  and (a.state = 'active' or a.outcome <> 'failed' or a.finished_at > b.started_at)
limit :limit;

-- A job is where its last attempt took it.
-- name: jobAgreesWithAttempts :many
select j.job_id::text as "resource!",
  format('it is %s, its attempts are: %s', j.state, coalesce(a.all_of_them, 'none')) as "problem!"
from holdfast.jobs j
cross join lateral (
  select count(*) filter (where e.state = 'active') as active, count(*) as attempts,
    (array_agg(e.outcome order by e.ordinal desc))[1] as last_outcome,
    string_agg(e.ordinal || ' ' || coalesce(e.outcome, e.state), ', ' order by e.ordinal) as all_of_them
  from holdfast.execution_attempts e where e.tenant_id = j.tenant_id and e.job_id = j.job_id
) a
where j.tenant_id = holdfast.current_tenant() and j.enrolled_at is not null and not case j.state
  when 'running' then a.active = 1
  when 'queued' then a.active = 0 and a.attempts < 2 and (a.attempts = 0 or a.last_outcome = 'failed')
  when 'succeeded' then a.active = 0 and a.last_outcome is not distinct from 'succeeded'
  when 'failed' then a.active = 0 and (a.attempts = 0 or a.last_outcome = 'failed')
  else a.active = 0 and (a.attempts = 0 or a.last_outcome in ('failed', 'cancelled')) end
limit :limit;

-- Exactly one of cancellation and publication wins (E10).
-- name: oneOfCancellationAndSuccess :many
select j.job_id::text as "resource!",
  format('it is %s, and its cancellation was asked for at %s', j.state, coalesce(j.cancel_requested_at::text, 'no time')) as "problem!"
from holdfast.jobs j
where j.tenant_id = holdfast.current_tenant() and j.enrolled_at is not null and (
  (j.state = 'succeeded' and j.cancel_requested_at is not null)
  or (j.state = 'cancelled' and (j.cancel_requested_at is null or j.cancel_requested_at > j.finished_at))
  or (j.state = 'failed' and j.failure_code is null))
limit :limit;

-- name: enrolledIsNotClaimed :many
select j.job_id::text as "resource!", format('it is enrolled, and the direct claimant %s has it', j.claimed_by) as "problem!"
from holdfast.jobs j
where j.tenant_id = holdfast.current_tenant() and j.enrolled_at is not null and j.claimed_by is not null
limit :limit;

-- Its deadline was fixed when it started, is within three hours, and what runs past it is being stopped (E4).
-- name: deadlineHolds :many
select a.job_id || '/' || a.ordinal as "resource!",
  case when a.deadline > a.started_at + interval '3 hours' or a.deadline <= a.started_at
    then format('it started at %s, and its deadline is %s', a.started_at, a.deadline)
    else format('its deadline was %s, and its sandbox %s is still released', a.deadline, s.name) end as "problem!"
from holdfast.execution_attempts a
left join holdfast.sandbox_attempts s on s.tenant_id = a.tenant_id and s.owner_kind = 'execution'
  and s.owner_id = a.attempt_id and s.state = 'released'
where a.tenant_id = holdfast.current_tenant() and (
  a.deadline > a.started_at + interval '3 hours' or a.deadline <= a.started_at
  or (a.state = 'active' and s.name is not null and a.deadline < (select holdfast.ledger_now()) - interval '5 minutes'))
limit :limit;

-- The attempt's phases are its plan's, one after the other.
-- name: phasesFollowThePlan :many
select a.job_id || '/' || a.ordinal as "resource!",
  format('it is %s (%s), its phases are %s, its plan has %s', a.state, coalesce(a.outcome, 'no outcome'),
    coalesce(p.states, 'none'), plan.names) as "problem!"
from holdfast.execution_attempts a
cross join lateral (
  select string_agg(f.phase ->> 'name' || ' ' || (f.phase ->> 'kind'), ', ' order by f.n) as names
  from jsonb_array_elements(a.plan -> 'phases') with ordinality f(phase, n)
) plan
cross join lateral (
  select string_agg(h.name || ' ' || h.kind, ', ' order by h.number) as names,
    string_agg(h.name || ' ' || h.state, ', ' order by h.number) as states,
    string_agg(h.state, ' ' order by h.number) as line,
    count(*) = max(h.number) and min(h.number) = 1 as gapless
  from holdfast.execution_phases h where h.tenant_id = a.tenant_id and h.attempt_id = a.attempt_id
) p
where a.tenant_id = holdfast.current_tenant() and not coalesce(
  p.names = plan.names and p.gapless and case
    when a.state = 'active' then p.line ~ '^(succeeded ?)*((running|failed) ?)?(pending ?)*$'
    when a.outcome = 'succeeded' then p.line ~ '^(succeeded ?)+$'
    else p.line ~ '^(succeeded ?)*(failed ?)?(skipped ?)*$' end, false)
limit :limit;

-- A phase starts only when the ones before it have ended and everything of them is proven stopped (E8).
-- name: phaseWaitsForTheOneBefore :many
select a.job_id || '/' || a.ordinal || '/' || p.name as "resource!",
  format('it started at %s, but %s ended at %s and was stopped at %s', p.started_at, b.name,
    coalesce(b.finished_at::text, 'no time'), coalesce(s.stopped_at::text, 'no time')) as "problem!"
from holdfast.execution_phases p
join holdfast.execution_attempts a on a.tenant_id = p.tenant_id and a.attempt_id = p.attempt_id
join holdfast.execution_phases b on b.tenant_id = p.tenant_id and b.attempt_id = p.attempt_id and b.number < p.number
left join holdfast.sandbox_attempts s on s.tenant_id = b.tenant_id and s.owner_kind = 'execution'
  and s.owner_id = b.attempt_id and s.step = b.name
where p.tenant_id = holdfast.current_tenant() and p.started_at is not null
  and (b.finished_at is null or b.finished_at > p.started_at or b.state <> 'succeeded'
    or (s.name is not null and (s.stopped_at is null or s.stopped_at > p.started_at)))
limit :limit;

-- A sandbox belongs to a phase that has started, and a phase that has ended has nothing alive (E8).
-- name: sandboxHasItsPhase :many
select s.name as "resource!",
  coalesce(format('it is %s since %s, its phase %s is %s since %s', s.state, coalesce(s.stopped_at, s.planned_at), p.name,
    p.state, coalesce(p.finished_at, p.started_at)), format('no attempt has its phase %s', s.step)) as "problem!"
from holdfast.sandbox_attempts s
left join holdfast.execution_phases p on p.tenant_id = s.tenant_id and p.attempt_id = s.owner_id and p.name = s.step
where s.tenant_id = holdfast.current_tenant() and s.owner_kind = 'execution' and (
  p.name is null or p.started_at is null or s.planned_at < p.started_at
  or (p.state in ('succeeded', 'failed') and (s.stopped_at is null or s.stopped_at > p.finished_at))
  or (p.state = 'succeeded' and s.released_at is not null and not (s.outcome = 'exited' and s.exit_code = 0)))
limit :limit;

-- name: successWasRun :many
select a.job_id || '/' || a.ordinal || '/' || p.name as "resource!",
  format('it has succeeded at %s, but no sandbox of it was ever released', p.finished_at) as "problem!"
from holdfast.execution_phases p
join holdfast.execution_attempts a on a.tenant_id = p.tenant_id and a.attempt_id = p.attempt_id
where p.tenant_id = holdfast.current_tenant() and p.state = 'succeeded' and not exists (
  select from holdfast.sandbox_attempts s
  where s.tenant_id = p.tenant_id and s.owner_kind = 'execution' and s.owner_id = p.attempt_id and s.step = p.name
    and s.released_at is not null)
limit :limit;

-- What comes after the sources starts with the pin of each of them (E9).
-- name: pinsCameBefore :many
select a.job_id || '/' || a.ordinal || '/' || p.name as "resource!",
  format('it started at %s, but the pin of %s came at %s', p.started_at, wanted.source,
    coalesce(i.reported_at::text, 'no time')) as "problem!"
from holdfast.execution_phases p
join holdfast.execution_attempts a on a.tenant_id = p.tenant_id and a.attempt_id = p.attempt_id
cross join lateral jsonb_object_keys(a.plan -> 'sources') as wanted(source)
left join holdfast.source_pins i on i.tenant_id = p.tenant_id and i.attempt_id = p.attempt_id and i.source = wanted.source
where p.tenant_id = holdfast.current_tenant() and p.kind <> 'source' and p.started_at is not null
  and (i.reported_at is null or i.reported_at > p.started_at)
limit :limit;

-- name: pinIsOfASource :many
select a.job_id || '/' || a.ordinal || '/' || i.source as "resource!",
  format('it was reported by %s, of the phase %s', s.name, coalesce(p.name || ' (' || p.kind || ')', 'of another attempt')) as "problem!"
from holdfast.source_pins i
join holdfast.execution_attempts a on a.tenant_id = i.tenant_id and a.attempt_id = i.attempt_id
left join holdfast.sandbox_attempts s on s.tenant_id = i.tenant_id and s.sandbox_id = i.sandbox_id
left join holdfast.execution_phases p on p.tenant_id = i.tenant_id and p.attempt_id = i.attempt_id
  and s.owner_kind = 'execution' and s.owner_id = i.attempt_id and p.name = s.step
where i.tenant_id = holdfast.current_tenant()
  and (p.kind is distinct from 'source' or s.released_at is null or i.reported_at < s.released_at
    or not (a.plan -> 'sources') ? i.source)
limit :limit;

-- An attempt ends when nothing of it runs and its output is stored or its loss recorded (E10).
-- name: endIsProven :many
select a.job_id || '/' || a.ordinal as "resource!",
  format('it finished at %s, but %s is %s since %s and its output is %s', a.finished_at, s.name, s.state,
    coalesce(s.stopped_at, s.planned_at),
    case when s.log_complete_at is not null then 'complete since ' || s.log_complete_at
      else coalesce('lost: ' || s.log_lost_reason, 'not settled') end) as "problem!"
from holdfast.execution_attempts a
join holdfast.sandbox_attempts s on s.tenant_id = a.tenant_id and s.owner_kind = 'execution' and s.owner_id = a.attempt_id
where a.tenant_id = holdfast.current_tenant() and a.state <> 'active' and (
  s.stopped_at is null or s.stopped_at > a.finished_at
  or (s.uid is not null and s.log_lost_reason is null and (s.log_complete_at is null or s.log_complete_at > a.finished_at)))
limit :limit;

-- Succeeded jobs that publish have the artifact that their last attempt declared, and no other job has any (E10, E20).
-- name: artifactIsASuccessfulJobs :many
select j.job_id::text as "resource!",
  format('it is %s, its last attempt %s and %s, and it has %s artifacts', j.state,
    case when a.publishes then 'has a publish phase' else 'has no publish phase' end,
    coalesce('declared ' || a.artifact_object, 'declared nothing'), r.artifacts) as "problem!"
from holdfast.jobs j
cross join lateral (select count(*) as artifacts from holdfast.artifacts t where t.tenant_id = j.tenant_id and t.job_id = j.job_id) r
left join lateral (
  select e.artifact_object, e.plan @? '$.phases[*] ? (@.kind == "publish")' as publishes
  from holdfast.execution_attempts e where e.tenant_id = j.tenant_id and e.job_id = j.job_id
  order by e.ordinal desc limit 1
) a on true
where j.tenant_id = holdfast.current_tenant() and j.enrolled_at is not null
  and r.artifacts <> case when j.state = 'succeeded' and a.publishes then 1 else 0 end
limit :limit;

-- name: artifactIsAStoredObject :many
select r.job_id || '/' || r.name as "resource!",
  case when o.name is null then 'no attempt of its job has an object with its key, name, length and digest'
    when o.stored_at is null then format('its object %s/%s was never stored', o.phase, o.name)
    else format('its object %s/%s was removed at %s', o.phase, o.name, o.removed_at) end as "problem!"
from holdfast.artifacts r
join holdfast.jobs j on j.tenant_id = r.tenant_id and j.job_id = r.job_id and j.enrolled_at is not null
left join (holdfast.attempt_objects o
  join holdfast.execution_attempts a on a.tenant_id = o.tenant_id and a.attempt_id = o.attempt_id
) on o.tenant_id = r.tenant_id and o.blob_key = r.blob_key and a.job_id = r.job_id and a.artifact_object = o.name
  and o.name = r.name and o.bytes = r.bytes and o.sha256 = r.sha256
where r.tenant_id = holdfast.current_tenant()
  and (o.name is null or o.stored_at is null or (o.removed_at is not null and r.removed_at is null))
limit :limit;

-- Kept until its retention ends, and not long after (E11, E20).
-- name: retentionHolds :many
select r.job_id || '/' || r.name as "resource!",
  case when r.removed_at is not null then format('it was removed at %s, but is to be kept until %s', r.removed_at, r.retain_until)
    else format('its retention ended at %s, and it is still there', r.retain_until) end as "problem!"
from holdfast.artifacts r
join holdfast.jobs j on j.tenant_id = r.tenant_id and j.job_id = r.job_id and j.enrolled_at is not null
where r.tenant_id = holdfast.current_tenant() and (r.removed_at < r.retain_until
  or (r.removed_at is null and r.retain_until < (select holdfast.ledger_now()) - interval '1 hour'))
limit :limit;

-- Nothing outside is left of a cleaned attempt but its artifact (E14).
-- name: cleanedLeavesNothing :many
select a.job_id || '/' || a.ordinal as "resource!", format('it was cleaned at %s, but %s', a.cleaned_at, left_over.what) as "problem!"
from holdfast.execution_attempts a
cross join lateral (
  select format('the sandbox %s is %s', s.name, s.state) as what from holdfast.sandbox_attempts s
  where s.tenant_id = a.tenant_id and s.owner_kind = 'execution' and s.owner_id = a.attempt_id and s.state <> 'removed'
  union all
  select format('the object %s/%s is not removed', o.phase, o.name) from holdfast.attempt_objects o
  where o.tenant_id = a.tenant_id and o.attempt_id = a.attempt_id and o.removed_at is null
    and not exists (select from holdfast.artifacts r where r.tenant_id = o.tenant_id and r.blob_key = o.blob_key)
) left_over
where a.tenant_id = holdfast.current_tenant() and a.state = 'cleaned'
limit :limit;

-- name: cleaningIsNotLate :many
select a.job_id || '/' || a.ordinal as "resource!", format('it finished at %s and is not cleaned', a.finished_at) as "problem!"
from holdfast.execution_attempts a
where a.tenant_id = holdfast.current_tenant() and a.state = 'finished'
  and a.finished_at < (select holdfast.ledger_now()) - interval '1 hour'
limit :limit;

-- What needs attention has a lease that makes it due, and nothing else has one (G2).
-- name: leaseHasItsResource :many
select coalesce(l.kind, need.kind) || '/' || coalesce(l.resource_id, need.resource_id) as "resource!",
  case when need.kind is null then 'it has a lease, but nothing is left to attend to'
    when l.kind is null then format('it is %s, and no lease makes it due', need.reason)
    else format('it is %s with the queue %s and the priority %s, its lease has %s and %s', need.reason, need.queue,
      coalesce(need.priority::text, 'any'), l.queue, l.priority) end as "problem!"
from (
  select e.kind, e.resource_id, e.queue, e.priority from holdfast.leases e
  where e.tenant_id = holdfast.current_tenant() and (e.kind in ('admission', 'execution')
    or (e.kind = 'retention' and e.queue in ('default', 'log')))
) l
full join (
  select 'admission' as kind, j.job_id as resource_id, coalesce(c.spec ->> 'pool', 'default') as queue,
    j.priority, 'queued' as reason
  from holdfast.jobs j
  join holdfast.job_specs c on c.tenant_id = j.tenant_id and c.spec_digest = j.spec_digest
  where j.tenant_id = holdfast.current_tenant() and j.enrolled_at is not null and j.state = 'queued'
  union all
  select 'execution', a.attempt_id, a.plan ->> 'runtime', null, a.state
  from holdfast.execution_attempts a
  where a.tenant_id = holdfast.current_tenant() and a.state in ('active', 'finished')
  union all
  select 'retention', l.owner_id, 'log', null, 'archived'
  from holdfast.log_archives l
  where l.tenant_id = holdfast.current_tenant() and l.owner_kind = 'execution' and l.removed_at is null
  union all
  select 'retention', r.job_id, 'default', null, 'published'
  from holdfast.artifacts r
  join holdfast.jobs j on j.tenant_id = r.tenant_id and j.job_id = r.job_id and j.enrolled_at is not null
  where r.tenant_id = holdfast.current_tenant() and r.removed_at is null
) need on need.kind = l.kind and need.resource_id = l.resource_id
where l.kind is null or need.kind is null or l.queue <> need.queue or l.priority <> need.priority
limit :limit;

-- name: waitingKeepsItsPlace :many
select j.job_id::text as "resource!",
  format('it waits since %s, and its admission is due at %s', j.queued_at, l.due_at) as "problem!"
from holdfast.jobs j
join holdfast.leases l on l.tenant_id = j.tenant_id and l.kind = 'admission' and l.resource_id = j.job_id
where j.tenant_id = holdfast.current_tenant() and l.due_at <> j.queued_at
limit :limit;

-- Each version of a job or attempt that was committed is in the change log (S6).
-- name: versionsAreInTheLog :many
select v.kind || '/' || v.resource_id as "resource!",
  format('it is at version %s, its last change at %s', v.resource_version, coalesce(c.version::text, 'none')) as "problem!"
from (
  select 'job' as kind, j.job_id as resource_id, j.resource_version from holdfast.jobs j
  where j.tenant_id = holdfast.current_tenant() and j.enrolled_at is not null
  union all
  select 'attempt', a.attempt_id, a.resource_version from holdfast.execution_attempts a
  where a.tenant_id = holdfast.current_tenant()
) v
cross join holdfast.change_counter f
left join lateral (
  select max(r.resource_version) as version from holdfast.resource_changes r
  where r.tenant_id = holdfast.current_tenant() and r.kind = v.kind and r.resource_id = v.resource_id
) c on true
where case when c.version is null then f.floor = 0 else c.version <> v.resource_version end
limit :limit;

-- For the digests, which SQL can't compute: in order, after the last of the page before.
-- name: pagePlans :many
-- null: after
select a.attempt_id, a.job_id, a.ordinal, a.plan, a.plan_digest from holdfast.execution_attempts a
where a.tenant_id = holdfast.current_tenant() and (:after::uuid is null or a.attempt_id > :after)
order by a.attempt_id
limit :limit;

-- name: pageSpecs :many
-- null: after
select s.spec_digest, s.spec from holdfast.job_specs s
where s.tenant_id = holdfast.current_tenant() and (:after::text is null or s.spec_digest > :after)
  and exists (select from holdfast.jobs j
    where j.tenant_id = s.tenant_id and j.spec_digest = s.spec_digest and j.enrolled_at is not null)
order by s.spec_digest
limit :limit;
