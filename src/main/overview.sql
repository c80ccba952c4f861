-- A tenant at a glance, and the installation. Every count stops at :most, and no question costs more than so many
-- probes of an index, whatever the store holds: each walks an index that begins with the tenant, in the index's order,
-- and stops there. What can't be found so is looked for among the first :most rows alone.

-- Sandboxes that live are few: whose stop can't be proven is one of them.
-- name: readOverview :one
select
  (select count(*) from (select from holdfast.jobs j
    where j.tenant_id = holdfast.current_tenant() and j.state = 'queued'
    order by j.queued_at limit :most) c) as "jobs_waiting!",
  (select min(j.queued_at) from holdfast.jobs j
    where j.tenant_id = holdfast.current_tenant() and j.state = 'queued') as "oldest_waiting_at?",
  (select count(*) from (select s.stop_unproven_at from holdfast.sandbox_attempts s
    where s.tenant_id = holdfast.current_tenant() and s.state in ('planned', 'held', 'released', 'stopping')
    order by s.owner_kind, s.owner_id limit :most) c where c.stop_unproven_at is not null) as "unproven!",
  (select count(*) from (select from holdfast.publication_outbox p
    where p.tenant_id = holdfast.current_tenant() and p.state = 'pending'
    order by p.session_id, p.destination, p.ordinal limit :most) c) as "deliveries_pending!",
  (select count(*) from (select from holdfast.publication_outbox p
    where p.tenant_id = holdfast.current_tenant() and p.state = 'dead'
    order by p.created_at desc, p.publication_id desc limit :most) c) as "deliveries_dead!";

-- name: readRecentJobs :many
select r.state as "state!", count(*) as "count!"
from (
  select j.state from holdfast.jobs j
  where j.tenant_id = holdfast.current_tenant() and j.created_at >= :since
  order by j.created_at desc limit :most) r
where r.state in ('succeeded', 'failed', 'cancelled')
group by r.state;

-- Slots are bounded by the operator who made them, and what runs by the slots.
-- name: readOwnPools :many
with mine as (
  select a.pool, count(*) as running from holdfast.execution_attempts a
  where a.tenant_id = holdfast.current_tenant() and a.state = 'active'
  group by a.pool)
select s.pool as "pool!", count(*) as "slots!", coalesce(min(m.running), 0) as "running!"
from holdfast.slots s left join mine m on m.pool = s.pool
group by s.pool
order by s.pool
limit 100;

-- name: readOpenActivations :many
select a.state as "state!", count(*) as "count!"
from (
  select a.state from holdfast.activations a
  where a.tenant_id = holdfast.current_tenant() and a.state in ('queued', 'running', 'committing', 'waiting')
  order by a.session_id, a.ordinal limit :most) a
group by a.state;

-- No index finds what is held, or due the longest, of one tenant: one that did would be written by each claim. Of each
-- kind the first :most by their ids are looked at, and ids grow with time.
-- name: countOwnLeases :many
select k.kind as "kind!", l.work_state as "work_state?", count(*) as "looked_at!",
  count(*) filter (where l.holder is not null and l.wake_at > c.now) as "held!",
  count(*) filter (where l.wake_at <= c.now) as "due!"
from unnest(:kinds::text[]) as k(kind)
cross join (select holdfast.ledger_now() as now) c
cross join lateral (
  select l.work_state, l.holder, l.wake_at from holdfast.leases l
  where l.tenant_id = holdfast.current_tenant() and l.kind = k.kind
  order by l.resource_id limit :most) l
group by k.kind, l.work_state
order by k.kind, l.work_state;

-- The longest due first, among as many of each kind.
-- name: listLeases :many
select l.kind, l.resource_id, l.queue, l.priority, l.holder, l.epoch, l.due_at, l.wake_at
from unnest(:kinds::text[]) as k(kind)
cross join lateral (
  select l.* from holdfast.leases l
  where l.tenant_id = holdfast.current_tenant() and l.kind = k.kind
  order by l.resource_id limit :most) l
order by l.due_at, l.resource_id
limit :limit;

-- name: listLeasesOfResource :many
select l.kind, l.resource_id, l.queue, l.priority, l.holder, l.epoch, l.due_at, l.wake_at
from holdfast.leases l
where l.tenant_id = holdfast.current_tenant() and l.kind = any (:kinds::text[]) and l.resource_id = :resource
order by l.due_at, l.kind;

-- name: readStoreFacts :one
select s.installation_id, s.incarnation_id, s.created_at, s.deployment_epoch, s.reader_floor, s.writer_floor,
  c.position, c.floor
from holdfast.store s, holdfast.change_counter c;

-- name: listMigrations :many
select version, name, checksum, applied_at from holdfast.schema_migrations order by version;

-- Those that live first, then the newest.
-- name: listIncarnations :many
select i.incarnation_id, i.process, i.release, i.schema_minimum, i.schema_maximum, i.deployment_epoch, i.started_at,
  i.seen_at, i.ended_at,
  (i.ended_at is null and i.seen_at > (select holdfast.ledger_now()) - holdfast.microseconds(:within_us)) as "alive!"
from holdfast.incarnations i
order by (i.ended_at is null) desc, i.seen_at desc
limit :limit;

-- Over all tenants, among the first :most of each kind; each kind's rows are live ones.
-- name: countHeldLeases :many
select l.holder as "holder!", count(*) as "count!"
from unnest(:kinds::text[]) as k(kind)
cross join (select holdfast.ledger_now() as now) c
cross join lateral (
  select l.holder, l.wake_at from holdfast.leases l
  where l.kind = k.kind
  order by l.tenant_id, l.resource_id limit :most) l
where l.holder is not null and l.wake_at > c.now
group by l.holder
limit 1000;

-- Of Work, which may be much, a part of the pages: parts per million.
-- name: countHeldWork :many
select l.holder as "holder!", count(*) as "count!"
from holdfast.leases_work l tablesample system ((:parts::bigint / 10000.0)::real)
where l.holder is not null and l.wake_at > (select holdfast.ledger_now())
group by l.holder
limit 1000;
