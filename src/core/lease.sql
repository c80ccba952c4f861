-- Leases: who attends to what. The model stands at the top of migrations/0003_leases.sql.

-- Takes up to :limit due leases of a queue, at most :quota of each tenant, most urgent first. Tenants are found
-- by a loose scan of the index and share what is left of the limit, so a long backlog of one costs the others
-- nothing, and hardly more rows are locked than are taken. Rows that another claim has locked are skipped. A
-- lease whose holder let it expire is as due as one that nobody held.
-- Tenants of :full are passed over.
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
), line as (
  select t.priority, t.tenant_id, count(*) over (partition by t.priority) as tenants
  from tenant t
  cross join lateral (
    select l.wake_at from holdfast.leases l
    where l.kind = :kind and l.queue = :queue and l.priority = t.priority and l.tenant_id = t.tenant_id
      and l.wake_at <= :now
    order by l.wake_at limit 1
  ) oldest
  where t.tenant_id is not null and t.tenant_id <> all (:full::text[])
  order by t.priority, oldest.wake_at, t.tenant_id
), taken as (
  -- The limit stops the walk along the lines, so later tenants' rows are not even looked at.
  select d.tenant_id, d.resource_id
  from line
  cross join lateral (
    select l.tenant_id, l.resource_id from holdfast.leases l
    where l.kind = :kind and l.queue = :queue and l.priority = line.priority and l.tenant_id = line.tenant_id
      and l.wake_at <= :now
    order by l.wake_at, l.resource_id
    limit least(:quota::bigint, (:limit::bigint + line.tenants - 1) / line.tenants)
    for update skip locked
  ) d
  limit :limit
)
update holdfast.leases l
set holder = :holder, epoch = nextval('holdfast.lease_epochs'),
    wake_at = :now::timestamptz + holdfast.microseconds(:lease_us)
from taken
where l.kind = :kind and l.tenant_id = taken.tenant_id and l.resource_id = taken.resource_id
returning l.tenant_id, l.kind, l.resource_id, l.epoch, l.wake_at as expires_at;

-- Extends what this holder still has, up to the lease's own limit if it has one, and shows that it is alive. `state` of each, by its place in the arrays:
-- `renewed`, `lost` (expired or taken, or the holder's deployment epoch is over), or `busy`: still held, but a transaction has the row locked, for which
-- the others must not wait.
-- name: renewLeases :many
with mine as (
  select * from unnest(:tenants::text[], :kinds::text[], :resources::uuid[], :epochs::bigint[])
    with ordinality as m(tenant_id, kind, resource_id, epoch, place)
), fenced as (
  select from holdfast.incarnations i, holdfast.store s
  where i.incarnation_id = :holder and i.deployment_epoch <> s.deployment_epoch
), beat as (
  update holdfast.incarnations set seen_at = holdfast.ledger_now()
  where incarnation_id = :holder and ended_at is null and not exists (select from fenced)
), held as (
  select m.place, m.tenant_id, m.kind, m.resource_id from mine m
  join holdfast.leases l on l.tenant_id = m.tenant_id and l.kind = m.kind and l.resource_id = m.resource_id
  where l.holder = :holder and l.epoch = m.epoch and l.wake_at > holdfast.ledger_now() and not exists (select from fenced)
), free as (
  select m.place, m.tenant_id, m.kind, m.resource_id from mine m
  join holdfast.leases l on l.tenant_id = m.tenant_id and l.kind = m.kind and l.resource_id = m.resource_id
  where l.holder = :holder and l.epoch = m.epoch and l.wake_at > holdfast.ledger_now() and not exists (select from fenced)
  for no key update of l skip locked
), renewed as (
  update holdfast.leases l
  set wake_at = least(holdfast.ledger_now() + holdfast.microseconds(:lease_us), l.renew_until)
  from free
  where l.tenant_id = free.tenant_id and l.kind = free.kind and l.resource_id = free.resource_id
    and l.wake_at > holdfast.ledger_now()
  returning free.place, (extract(epoch from l.wake_at - holdfast.ledger_now()) * 1000000)::bigint as left_us,
    coalesce(l.work_state = 'cancel_pending', false) as cancelled
)
select m.place::integer as "place!",
  case
    when r.place is not null then 'renewed'
    when exists (select from held h where h.place = m.place) then 'busy'
    else 'lost'
  end as "state!",
  coalesce(r.left_us, 0) as "left_us!",
  -- Of Work: whoever runs it hears of it with the renewal, and may stop.
  coalesce(r.cancelled, false) as "cancelled!"
from mine m left join renewed r on r.place = m.place order by m.place;

-- Gives a lease back, to be due again at a given instant. The epoch stays, so it can't be used again.
-- name: returnLease :exec
update holdfast.leases
set holder = null, due_at = :due_at, wake_at = :due_at
where tenant_id = holdfast.current_tenant() and kind = :kind and resource_id = :resource;

-- A new thing that needs attention.
-- name: insertLease :exec
insert into holdfast.leases (tenant_id, kind, resource_id, queue, priority, due_at, wake_at)
values (holdfast.current_tenant(), :kind, :resource, :queue, :priority, :due_at, :due_at);

-- A new thing that its maker attends to at once. The lease runs from this statement, not from the beginning of
-- its transaction, so that the maker can time it.
-- name: insertHeldLease :one
insert into holdfast.leases (tenant_id, kind, resource_id, queue, priority, due_at, wake_at, holder, epoch)
values (holdfast.current_tenant(), :kind, :resource, :queue, :priority, :due_at,
  holdfast.ledger_now() + holdfast.microseconds(:lease_us), :holder, nextval('holdfast.lease_epochs'))
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
