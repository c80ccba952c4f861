-- A tenant at a glance, and the installation. Every count stops at :most, and is of live rows or of an index's end.

-- name: readOverview :one
select
  (select count(*) from (select from holdfast.jobs j
    where j.tenant_id = holdfast.current_tenant() and j.state = 'queued' limit :most) c) as "jobs_waiting!",
  (select min(j.queued_at) from holdfast.jobs j
    where j.tenant_id = holdfast.current_tenant() and j.state = 'queued') as "oldest_waiting_at?",
  (select count(*) from (select from holdfast.sandbox_attempts s
    where s.tenant_id = holdfast.current_tenant() and s.stop_unproven_at is not null and s.stopped_at is null
    limit :most) c) as "unproven!",
  (select count(*) from (select from holdfast.publication_outbox p
    where p.tenant_id = holdfast.current_tenant() and p.state = 'pending' limit :most) c) as "deliveries_pending!",
  (select count(*) from (select from holdfast.publication_outbox p
    where p.tenant_id = holdfast.current_tenant() and p.state = 'dead' limit :most) c) as "deliveries_dead!",
  (select count(*) from (select from holdfast.leases l
    where l.tenant_id = holdfast.current_tenant() and l.holder is not null and l.wake_at > holdfast.ledger_now()
    limit :most) c) as "leases_held!",
  (select count(*) from (select from holdfast.leases l
    where l.tenant_id = holdfast.current_tenant() and l.kind <> 'admission' and l.wake_at <= holdfast.ledger_now()
    limit :most) c) as "leases_due!";

-- name: readRecentJobs :many
select r.state as "state!", count(*) as "count!"
from (
  select j.state from holdfast.jobs j
  where j.tenant_id = holdfast.current_tenant() and j.created_at >= :since
  order by j.created_at desc limit :most) r
where r.state in ('succeeded', 'failed', 'cancelled')
group by r.state;

-- name: readOwnPools :many
select s.pool as "pool!", count(*) as "slots!", (
  select count(*) from holdfast.execution_attempts a
  where a.tenant_id = holdfast.current_tenant() and a.state = 'active' and a.pool = s.pool) as "running!"
from holdfast.slots s
group by s.pool
order by s.pool
limit 100;

-- name: readOpenActivations :many
select a.state as "state!", count(*) as "count!"
from (
  select a.state from holdfast.activations a
  where a.tenant_id = holdfast.current_tenant() and a.state in ('queued', 'running', 'committing', 'waiting')
  limit :most) a
group by a.state;

-- name: readOpenWork :many
select w.work_state as "state!", count(*) as "count!"
from (
  select l.work_state from holdfast.leases l
  where l.tenant_id = holdfast.current_tenant() and l.kind = 'work' limit :most) w
where w.work_state is not null
group by w.work_state
order by w.work_state;

-- The longest due first. One kind, one resource, or null for all of them; those of waiting jobs only where they are
-- asked for: they wait for a slot.
-- name: listLeases :many
-- null: kind, resource
select l.kind, l.resource_id, l.queue, l.priority, l.holder, l.epoch, l.due_at, l.wake_at
from holdfast.leases l
where l.tenant_id = holdfast.current_tenant()
  and (:kind::text is null or l.kind = :kind)
  and (:resource::uuid is null or l.resource_id = :resource)
  and (:waiting::boolean or l.kind <> 'admission')
order by l.due_at, l.resource_id
limit :limit;

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

-- name: countHeldLeases :many
select l.holder as "holder!", count(*) as "count!"
from holdfast.leases l
where l.holder is not null and l.wake_at > (select holdfast.ledger_now())
group by l.holder
limit 1000;
