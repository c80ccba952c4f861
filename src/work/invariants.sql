-- What is always true of Work. A row for each thing that is wrong, none when all is well.

-- An item is live, with one lease row, or finished, with one row of history; never both, and neither without an item.
-- name: workIsLiveOrFinished :many
select coalesce(w.work_id, l.resource_id, h.work_id)::text as "resource!",
  case when w.work_id is null then 'it was never accepted, and is live or finished'
    when l.resource_id is null and h.work_id is null then 'it is neither live nor finished'
    else format('it is %s, and it ended as %s', l.work_state, h.state) end as "problem!"
from (select i.work_id from holdfast.work_items i where i.tenant_id = holdfast.current_tenant()) w
full join (
  select k.resource_id, k.work_state from holdfast.leases_work k where k.tenant_id = holdfast.current_tenant()
) l on l.resource_id = w.work_id
full join (
  select f.work_id, f.state from holdfast.work_history f where f.tenant_id = holdfast.current_tenant()
) h on h.work_id = coalesce(w.work_id, l.resource_id)
where w.work_id is null or (l.resource_id is null) = (h.work_id is null)
limit :limit;

-- Where its lease waits is where the workers of its version look.
-- name: workWaitsInItsLane :many
select w.work_id::text as "resource!",
  format('it waits in %s, and its version and queue are those of %s', l.queue, w.version_number || '.' || w.queue) as "problem!"
from holdfast.work_items w
join holdfast.leases_work l on l.tenant_id = w.tenant_id and l.kind = 'work' and l.resource_id = w.work_id
where w.tenant_id = holdfast.current_tenant()
  and (l.queue <> w.version_number || '.' || w.queue or w.discovery_hint <> l.queue or l.priority <> w.priority)
limit :limit;

-- Each permit so far is on record, as the one that is open, the one with which it finished, or an attempt; and there are
-- no more of them than its policy has (W3, W5).
-- name: workAttemptsAreOnRecord :many
select x.work_id::text as "resource!",
  case when x.permits > x.attempts_max then format('%s attempts were admitted of %s', x.permits, x.attempts_max)
    else format('%s attempts were admitted, and %s are on record', x.permits, x.recorded) end as "problem!"
from (
  select w.work_id, w.attempts_max, coalesce(l.attempt, h.attempts) as permits,
    (case when l.work_state in ('permitted', 'cancel_pending') then 1
      when h.epoch is not null and not coalesce(h.epoch = any (a.epochs), false) then 1 else 0 end)
      + coalesce(a.numbers, 0) as recorded
  from holdfast.work_items w
  left join holdfast.leases_work l on l.tenant_id = w.tenant_id and l.kind = 'work' and l.resource_id = w.work_id
  left join holdfast.work_history h on h.tenant_id = w.tenant_id and h.work_id = w.work_id
  left join (
    select t.work_id, count(distinct t.attempt) as numbers, array_agg(t.epoch) as epochs from holdfast.work_attempts t
    where t.tenant_id = holdfast.current_tenant() and t.outcome <> 'returned' group by t.work_id
  ) a on a.work_id = w.work_id
  where w.tenant_id = holdfast.current_tenant()
) x
where x.permits > x.attempts_max or x.permits <> x.recorded
limit :limit;

-- An open permit says who has it, since when, and until when it may be renewed; nothing else has one (W5).
-- name: permitHasItsHolder :many
select l.resource_id::text as "resource!",
  case when l.work_state not in ('permitted', 'cancel_pending') then format('it is %s, and has a permit since %s', l.work_state, l.permit_admitted_at)
    when l.holder is null then 'its permit is open, and nobody has it'
    when l.permit_admitted_at is null then 'its permit is open, and nobody knows since when'
    else format('its lease lasts until %s, and may be renewed until %s', l.wake_at, l.renew_until) end as "problem!"
from holdfast.leases_work l
where l.tenant_id = holdfast.current_tenant()
  and case when l.work_state in ('permitted', 'cancel_pending')
    then l.holder is null or l.permit_admitted_at is null or l.renew_until is null or l.wake_at > l.renew_until
    else l.permit_admitted_at is not null or l.renew_until is not null end
limit :limit;

-- What finished agrees with the attempts and proofs that it is told of: nothing unknown became a failure or a
-- cancellation, no failure is a success, and what was cancelled says so (W6, W11).
-- name: historyAgreesWithItsAttempts :many
select h.work_id::text as "resource!",
  case when h.state in ('failed', 'cancelled_before_effect') and u.open > 0 then format('it ended as %s, and an outcome of it is unknown', h.state)
    when c.work_id is null and h.state in ('cancelled_before_effect', 'succeeded_after_cancel_requested') then format('it ended as %s, and nobody asked for that', h.state)
    when c.work_id is not null and h.state = 'succeeded' then 'its end was asked for, and its success does not say so'
    else format('it ended as %s under a permit whose attempt was %s', h.state, a.outcome) end as "problem!"
from holdfast.work_history h
left join holdfast.work_cancels c on c.tenant_id = h.tenant_id and c.work_id = h.work_id
left join holdfast.work_attempts a on a.tenant_id = h.tenant_id and a.work_id = h.work_id and a.epoch = h.epoch
left join holdfast.work_proofs p on p.tenant_id = a.tenant_id and p.work_id = a.work_id and p.attempt = a.attempt and p.epoch = a.epoch
left join (
  select t.work_id, count(*) filter (where q.epoch is null) as open
  from holdfast.work_attempts t
  left join holdfast.work_proofs q on q.tenant_id = t.tenant_id and q.work_id = t.work_id and q.attempt = t.attempt and q.epoch = t.epoch
  where t.tenant_id = holdfast.current_tenant() and t.outcome = 'unknown' group by t.work_id
) u on u.work_id = h.work_id
where h.tenant_id = holdfast.current_tenant()
  and ((h.state in ('failed', 'cancelled_before_effect') and u.open > 0)
    or (c.work_id is null and h.state in ('cancelled_before_effect', 'succeeded_after_cancel_requested'))
    or (c.work_id is not null and h.state = 'succeeded')
    or (a.epoch is not null and (a.outcome <> 'unknown' or p.verdict is distinct from 'applied')))
limit :limit;

-- Out of its line means exactly one open suspension.
-- name: suspendedHasItsReason :many
select coalesce(l.resource_id, s.work_id)::text as "resource!",
  case when s.work_id is null then 'it is out of its line, and nobody knows why'
    else format('it is %s, and was taken out of its line at %s', coalesce(l.work_state, 'not live'), s.suspended_at) end as "problem!"
from (
  select k.resource_id, k.work_state from holdfast.leases_work k where k.tenant_id = holdfast.current_tenant()
) l
full join (
  select o.work_id, o.suspended_at from holdfast.work_suspensions o
  where o.tenant_id = holdfast.current_tenant() and o.ended_at is null
) s on s.work_id = l.resource_id
where (coalesce(l.work_state, '') = 'suspended') <> (s.work_id is not null)
limit :limit;

-- The first closure is a pair, not before the bound that it names, and the first look after the deadline is not before
-- the deadline (W4, W10).
-- name: closureIsOfItsBound :many
select w.work_id::text as "resource!",
  case when (w.execution_admission_closed_at is null) <> (w.execution_admission_closed_reason is null) then 'its closure is half of a pair'
    when w.execution_deadline_reached_at < w.execution_not_after then 'its deadline was reached before it was'
    else format('admission closed at %s by %s, before that', w.execution_admission_closed_at, w.execution_admission_closed_reason) end as "problem!"
from holdfast.work_items w
where w.tenant_id = holdfast.current_tenant() and w.execution_policy_schema is not null
  and ((w.execution_admission_closed_at is null) <> (w.execution_admission_closed_reason is null)
    or w.execution_deadline_reached_at < w.execution_not_after
    or (w.execution_admission_closed_reason <> 'slots_exhausted' and w.execution_admission_closed_at < case w.execution_admission_closed_reason
      when 'deadline_elapsed' then coalesce(w.execution_not_after, 'infinity')
      when 'circuit_elapsed' then coalesce(w.accepted_at + holdfast.microseconds(w.maximum_circuit_microseconds), 'infinity')
      else w.accepted_at + holdfast.microseconds(w.elapsed_max_microseconds) end))
limit :limit;

-- No attempt was admitted before it was eligible, or at or after its cutoff (W10).
-- name: admittedInItsTime :many
select w.work_id || '/' || a.attempt as "resource!",
  format('it was admitted at %s, and its time was from %s to before %s', a.admitted_at,
    w.accepted_at + holdfast.microseconds(w.attempt_plan_offsets[a.attempt]),
    holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after)) as "problem!"
from holdfast.work_items w
join (
  select t.work_id, t.attempt, t.permit_admitted_at as admitted_at from holdfast.work_attempts t where t.tenant_id = holdfast.current_tenant()
  union all
  select h.work_id, h.attempts, h.permit_admitted_at from holdfast.work_history h
  where h.tenant_id = holdfast.current_tenant() and h.holder is not null
    and not exists (select from holdfast.work_attempts t where t.tenant_id = h.tenant_id and t.work_id = h.work_id and t.epoch = h.epoch)
  union all
  select l.resource_id, l.attempt, l.permit_admitted_at from holdfast.leases_work l where l.tenant_id = holdfast.current_tenant()
) a on a.work_id = w.work_id
where w.tenant_id = holdfast.current_tenant()
  and (a.admitted_at < w.accepted_at + holdfast.microseconds(w.attempt_plan_offsets[a.attempt])
    or a.admitted_at >= holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after))
limit :limit;

-- A proof settles an attempt whose outcome was unknown, and only that (W11).
-- name: proofIsOfAnUnknown :many
select p.work_id || '/' || p.attempt as "resource!",
  format('it was proven %s, and its outcome was %s', p.verdict, coalesce(a.outcome, 'never unknown')) as "problem!"
from holdfast.work_proofs p
left join holdfast.work_attempts a on a.tenant_id = p.tenant_id and a.work_id = p.work_id and a.attempt = p.attempt and a.epoch = p.epoch
where p.tenant_id = holdfast.current_tenant() and a.outcome is distinct from 'unknown'
limit :limit;

-- What was quarantined settled nothing: the attempt that it tells of was lost (W6).
-- name: lateResultSettledNothing :many
select o.work_id || '/' || o.attempt as "resource!",
  format('its result was quarantined (%s), and the same attempt is %s', o.reason, coalesce(a.outcome, h.state)) as "problem!"
from holdfast.work_observations o
left join holdfast.work_attempts a on a.tenant_id = o.tenant_id and a.work_id = o.work_id and a.attempt = o.attempt and a.epoch = o.epoch
left join holdfast.work_history h on h.tenant_id = o.tenant_id and h.work_id = o.work_id and h.epoch = o.epoch and h.attempts = o.attempt
where o.tenant_id = holdfast.current_tenant()
  and (a.outcome = 'failed' or (a.outcome is null and h.work_id is not null))
limit :limit;
