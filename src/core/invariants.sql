-- What is always true of the kernel's tables. Each statement gives a row for each thing that is wrong, and none
-- when all is well: which resource, and what is wrong with it. `holdfast doctor` and the tests run the same ones.

-- For the transaction: each of these questions goes through whole tables, which are joined by hash, however many
-- rows there are. After a burst the statistics still say that there is hardly a row, and one table would be walked
-- through for each row of another: 15 s over a thousand attempts.
-- name: joinWholeTables :one
select set_config('enable_nestloop', 'off', true) as "setting!";

-- name: freeLeaseWakesWhenDue :many
select l.tenant_id || '/' || l.kind || '/' || l.resource_id as "resource!",
  format('nobody holds it and it is discovered at %s, but it is due at %s', l.wake_at, l.due_at) as "problem!"
from holdfast.leases l
where l.holder is null and l.wake_at <> l.due_at
limit :limit;

-- A higher one would be drawn again, and then two holders would have the same fence (E5).
-- name: leaseEpochWasDrawn :many
select l.tenant_id || '/' || l.kind || '/' || l.resource_id as "resource!",
  format('its epoch %s was never drawn from the sequence', l.epoch) as "problem!"
from holdfast.leases l
where l.epoch > coalesce(pg_sequence_last_value('holdfast.lease_epochs'), 0)
   or l.epoch < 0 or (l.holder is not null and l.epoch = 0)
limit :limit;

-- name: leaseEpochIsOneClaims :many
select string_agg(l.tenant_id || '/' || l.kind || '/' || l.resource_id, ', ') as "resource!",
  format('%s leases have the epoch %s', count(*), l.epoch) as "problem!"
from holdfast.leases l
where l.epoch > 0
group by l.epoch having count(*) > 1
limit :limit;

-- A reader at a position has seen everything up to it (S14), so none is missing and none is there twice.
-- name: positionsHaveNoGap :many
with stamped as (
  select r.position, lead(r.position) over (order by r.position) as next
  from holdfast.resource_changes r, holdfast.change_counter c
  where r.position > c.floor
), bounds as (
  select c.floor, c.position, (select min(s.position) from stamped s) as first
  from holdfast.change_counter c
)
select 'position ' || found.position as "resource!", found.problem as "problem!"
from (
  select s.position, case
    when s.next is null then format('it is the last one given, but the counter stands at %s', b.position)
    when s.next = s.position then 'two changes have it'
    else format('the next one after it is %s', s.next) end as problem
  from stamped s, bounds b
  where s.next is distinct from s.position + 1 and not (s.next is null and s.position = b.position)
  union all
  select b.floor, format('the first change after the floor %s has the position %s', b.floor, b.first)
  from bounds b where b.first > b.floor + 1
  union all
  select b.position, 'the counter stands here, but no change has a position'
  from bounds b where b.first is null and b.position > b.floor
) found
limit :limit;

-- name: versionsAscend :many
select o.kind || '/' || o.resource_id as "resource!",
  format('version %s at position %s comes after version %s at position %s', o.resource_version, o.position,
    o.before, o.position_before) as "problem!"
from (
  select r.kind, r.resource_id, r.resource_version, r.position,
    lag(r.resource_version) over resource as before, lag(r.position) over resource as position_before
  from holdfast.resource_changes r
  where r.tenant_id = holdfast.current_tenant() and r.position is not null
  window resource as (partition by r.kind, r.resource_id order by r.position)
) o
where o.resource_version <> o.before + 1
limit :limit;

-- name: changesAreStamped :many
select r.kind || '/' || r.resource_id as "resource!",
  format('version %s was written at %s and has no position yet', r.resource_version, r.at) as "problem!"
from holdfast.resource_changes r
where r.tenant_id = holdfast.current_tenant() and r.position is null
  and r.at < (select holdfast.ledger_now()) - interval '1 minute'
limit :limit;

-- What is told of one session to one destination is told one after the other (S8).
-- name: pendingPublicationHasLease :many
select found.resource as "resource!", found.problem as "problem!"
from (
  select l.resource_id::text as resource, coalesce('it is ' || o.state, 'it does not exist') || ', and a lease makes it due' as problem
  from holdfast.leases l
  left join holdfast.publication_outbox o on o.tenant_id = l.tenant_id and o.publication_id = l.resource_id
  where l.tenant_id = holdfast.current_tenant() and l.kind = 'publication' and o.state is distinct from 'pending'
  union all
  select format('what session %s tells %s', o.session_id, o.destination),
    format('of its %s pending publications %s are due by a lease instead of one', count(*), count(l.resource_id))
  from holdfast.publication_outbox o
  left join holdfast.leases l on l.tenant_id = o.tenant_id and l.kind = 'publication' and l.resource_id = o.publication_id
  where o.tenant_id = holdfast.current_tenant() and o.state = 'pending'
  group by o.session_id, o.destination having count(l.resource_id) <> 1
) found
limit :limit;

-- A command is written with what it did, so a committed one has its answer (G3).
-- name: commandsAreAnswered :many
select c.command_id::text as "resource!",
  format('%s of %s was committed at %s without an answer', c.operation, c.target, c.created_at) as "problem!"
from holdfast.commands c
where c.tenant_id = holdfast.current_tenant() and c.response_status is null
limit :limit;
