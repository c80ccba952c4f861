-- Admission: which waiting jobs may start, over all tenants. No payload.

-- Held until the transaction ends: of a pool's admissions, one at a time counts the free slots (E2).
-- name: lockPool :exec
select pg_advisory_xact_lock(hashtextextended('holdfast pool ' || :pool, 0));

-- Takes the leases of at most as many waiting jobs as the pool has slots that nobody holds and nobody else is
-- about to take, so whoever is claimed finds a slot, and the order of the queue is kept. Tenants that hold fewer
-- slots come first; within a tenant the most urgent job, then the one that has waited longest.
-- name: claimAdmissions :many
with recursive tenant(tenant_id) as (
  select min(l.tenant_id) from holdfast.leases l where l.kind = 'admission' and l.queue = :pool
  union all
  select (select min(l.tenant_id) from holdfast.leases l
    where l.kind = 'admission' and l.queue = :pool and l.tenant_id > t.tenant_id)
  from tenant t where t.tenant_id is not null
), room as (
  select count(*) filter (where s.tenant_id is null) - (
    select count(*) from holdfast.leases l
    where l.kind = 'admission' and l.queue = :pool and l.holder is not null and l.wake_at > :now) as free
  from holdfast.slots s where s.pool = :pool
), waiting as (
  select w.tenant_id, w.resource_id, w.priority, w.wake_at,
    row_number() over (partition by w.tenant_id order by w.priority, w.wake_at, w.resource_id) + (
      select count(*) from holdfast.slots s where s.pool = :pool and s.tenant_id = w.tenant_id) as share
  from tenant t
  cross join lateral (
    select l.tenant_id, l.resource_id, l.priority, l.wake_at
    from (values (0), (1), (2), (3)) as urgency(priority)
    cross join lateral (
      select * from holdfast.leases l
      where l.kind = 'admission' and l.queue = :pool and l.priority = urgency.priority
        and l.tenant_id = t.tenant_id and l.wake_at <= :now
      order by l.wake_at, l.resource_id
      limit greatest((select free from room), 0)
    ) l
    order by l.priority, l.wake_at, l.resource_id
    limit greatest((select free from room), 0)
  ) w
  where t.tenant_id is not null
), first as (
  select l.tenant_id, l.resource_id
  from holdfast.leases l
  join waiting w on l.kind = 'admission' and l.tenant_id = w.tenant_id and l.resource_id = w.resource_id
  where l.kind = 'admission' and l.wake_at <= :now
  order by w.share, w.priority, w.wake_at, w.resource_id
  limit greatest(least((select free from room), :limit), 0)
  for update of l skip locked
)
update holdfast.leases l
set holder = :holder, epoch = nextval('holdfast.lease_epochs'),
    wake_at = :now::timestamptz + holdfast.microseconds(:lease_us)
from first
where l.kind = 'admission' and l.tenant_id = first.tenant_id and l.resource_id = first.resource_id
returning l.tenant_id, l.resource_id, l.epoch;
