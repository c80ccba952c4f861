-- Admission: which waiting jobs may start, over all tenants. No payload.

-- Held until the transaction ends: of a pool's admissions, one at a time counts the free slots (E2).
-- name: lockPool :exec
select pg_advisory_xact_lock(hashtextextended('holdfast pool ' || :pool, 0));

-- A job whose starter died with its lease waits on in its old place: wake_at, by which the queue is ordered, is
-- the end of that lease, and becomes again when it was due. A statement of its own, so that the claim sees it.
-- name: reopenAdmissions :exec
update holdfast.leases l set holder = null, wake_at = l.due_at
from (
  select a.tenant_id, a.resource_id from holdfast.leases a
  where a.kind = 'admission' and a.queue = :pool and a.holder is not null and a.wake_at <= :now
  for update skip locked
) dead
where l.kind = 'admission' and l.tenant_id = dead.tenant_id and l.resource_id = dead.resource_id;

-- Takes the leases of at most as many waiting jobs as the pool has slots that nobody holds and nobody else is
-- about to take, so whoever is claimed finds a slot, and the order of the queue is kept. Tenants that hold fewer
-- slots, or are about to, come first; within a tenant the most urgent job, then the one that has waited longest.
-- name: claimAdmissions :many
with recursive tenant(tenant_id) as (
  select min(l.tenant_id) from holdfast.leases l where l.kind = 'admission' and l.queue = :pool
  union all
  select (select min(l.tenant_id) from holdfast.leases l
    where l.kind = 'admission' and l.queue = :pool and l.tenant_id > t.tenant_id)
  from tenant t where t.tenant_id is not null
), claimed as (
  select l.tenant_id from holdfast.leases l
  where l.kind = 'admission' and l.queue = :pool and l.holder is not null and l.wake_at > :now
), room as (
  select count(*) filter (where s.tenant_id is null) - (select count(*) from claimed) as free
  from holdfast.slots s where s.pool = :pool
), portion as (
  select p.tenant_id, count(*) as slots
  from (select c.tenant_id from claimed c
    union all select s.tenant_id from holdfast.slots s where s.pool = :pool and s.tenant_id is not null) p
  group by p.tenant_id
), waiting as (
  select w.tenant_id, w.resource_id, w.priority, w.wake_at,
    row_number() over (partition by w.tenant_id order by w.priority, w.wake_at, w.resource_id)
      + coalesce(p.slots, 0) as share
  from tenant t
  left join portion p on p.tenant_id = t.tenant_id
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
), line as (
  select w.tenant_id, w.resource_id from waiting w order by w.share, w.priority, w.wake_at, w.resource_id
), first as (
  -- Row by row along the line: a join would be planned as a walk over everything that waits.
  select l.tenant_id, l.resource_id
  from line
  cross join lateral (
    select a.tenant_id, a.resource_id from holdfast.leases a
    where a.kind = 'admission' and a.tenant_id = line.tenant_id and a.resource_id = line.resource_id
      and a.wake_at <= :now
    for update skip locked
  ) l
  limit greatest(least((select free from room), :limit), 0)
)
update holdfast.leases l
set holder = :holder, epoch = nextval('holdfast.lease_epochs'),
    wake_at = :now::timestamptz + holdfast.microseconds(:lease_us)
from first
where l.kind = 'admission' and l.tenant_id = first.tenant_id and l.resource_id = first.resource_id
returning l.tenant_id as "tenant_id!", l.resource_id as "resource_id!", l.epoch as "epoch!";
