-- Leases: who attends to what. The model stands at the top of migrations/0003_leases.sql.

-- Takes up to :limit due leases of a queue, at most :quota of each tenant, most urgent first. Tenants are found
-- by a loose scan of the index, so a long backlog of one costs the others nothing. Rows that another claim has
-- locked are skipped. A lease whose holder let it expire is as due as one that nobody held.
-- name: claimLeases :many
with recursive urgency(priority) as (
  values (0::smallint), (1::smallint), (2::smallint), (3::smallint)
), tenant(priority, tenant_id) as (
  select u.priority, (
    select l.tenant_id from holdfast.leases l
    where l.kind = :kind and l.queue = :queue and l.priority = u.priority
    order by l.tenant_id limit 1)
  from urgency u
  union all
  select t.priority, (
    select l.tenant_id from holdfast.leases l
    where l.kind = :kind and l.queue = :queue and l.priority = t.priority and l.tenant_id > t.tenant_id
    order by l.tenant_id limit 1)
  from tenant t where t.tenant_id is not null
), due as (
  select t.priority, d.tenant_id, d.resource_id, d.wake_at, d.turn
  from tenant t
  cross join lateral (
    select l.tenant_id, l.resource_id, l.wake_at, row_number() over (order by l.wake_at, l.resource_id) as turn
    from (
      select l.tenant_id, l.resource_id, l.wake_at from holdfast.leases l
      where l.kind = :kind and l.queue = :queue and l.priority = t.priority and l.tenant_id = t.tenant_id
        and l.wake_at <= :now
      order by l.wake_at, l.resource_id
      limit :quota
      for update skip locked
    ) l
  ) d
  where t.tenant_id is not null
), first as (
  select tenant_id, resource_id from due order by priority, turn, wake_at limit :limit
)
update holdfast.leases l
set holder = :holder, epoch = nextval('holdfast.lease_epochs'),
    wake_at = :now::timestamptz + holdfast.microseconds(:lease_us)
from first
where l.kind = :kind and l.tenant_id = first.tenant_id and l.resource_id = first.resource_id
returning l.tenant_id, l.kind, l.resource_id, l.epoch, l.wake_at as expires_at;

-- Extends what this holder still has. What is missing from the answer is lost: expired or taken.
-- name: renewLeases :many
update holdfast.leases l
set wake_at = holdfast.ledger_now() + holdfast.microseconds(:lease_us)
from unnest(:tenants::text[], :kinds::text[], :resources::uuid[], :epochs::bigint[]) as mine(tenant_id, kind, resource_id, epoch)
where l.tenant_id = mine.tenant_id and l.kind = mine.kind and l.resource_id = mine.resource_id
  and l.holder = :holder and l.epoch = mine.epoch and l.wake_at > holdfast.ledger_now()
returning l.resource_id, l.epoch;

-- Gives a lease back, to be due again at a given instant. The epoch stays, so it can't be used again.
-- name: returnLease :exec
update holdfast.leases
set holder = null, due_at = :due_at, wake_at = :due_at
where tenant_id = holdfast.current_tenant() and kind = :kind and resource_id = :resource;

-- A new thing that needs attention.
-- name: insertLease :exec
insert into holdfast.leases (tenant_id, kind, resource_id, queue, priority, due_at, wake_at)
values (holdfast.current_tenant(), :kind, :resource, :queue, :priority, :due_at, :due_at);

-- A new thing that its maker attends to at once.
-- name: insertHeldLease :one
insert into holdfast.leases (tenant_id, kind, resource_id, queue, priority, due_at, wake_at, holder, epoch)
values (holdfast.current_tenant(), :kind, :resource, :queue, :priority, :now, :now::timestamptz + holdfast.microseconds(:lease_us),
  :holder, nextval('holdfast.lease_epochs'))
returning epoch, wake_at as expires_at;

-- Locks the lease row, for those who change a resource from outside and must keep the lock order.
-- name: lockLease :maybe
select holder, epoch, wake_at from holdfast.leases
where tenant_id = holdfast.current_tenant() and kind = :kind and resource_id = :resource
for no key update;

-- Nothing is left to attend to.
-- name: deleteLease :exec
delete from holdfast.leases
where tenant_id = holdfast.current_tenant() and kind = :kind and resource_id = :resource;

-- A waiting thing changes its urgency.
-- name: setLeasePriority :exec
update holdfast.leases set priority = :priority
where tenant_id = holdfast.current_tenant() and kind = :kind and resource_id = :resource;

-- What a process that is proven dead still held becomes due at once, instead of after the lease time.
-- name: expireLeasesOf :exec
update holdfast.leases set wake_at = holdfast.ledger_now()
where holder = :holder and wake_at > holdfast.ledger_now();
