-- What waits and what runs, over all tenants: counts alone, no name but a pool's, no payload. For metrics.

-- Waiting jobs are bounded by the queue's limit, and slots by the operator who made them.
-- name: readPoolLoad :many
select s.pool as "pool!", count(*) as "slots!", count(s.attempt_id) as "used!", (
  select count(*) from holdfast.leases l where l.kind = 'admission' and l.queue = s.pool) as "waiting!"
from holdfast.slots s
group by s.pool
order by s.pool
limit :limit;

-- An attempt keeps its lease until it is cleaned, and its slot until it has finished. One that is due has nobody.
-- name: readAttemptLoad :one
select count(*) as "open!", count(*) filter (where l.wake_at <= holdfast.ledger_now()) as "unattended!",
  (select count(*) from holdfast.slots s where s.attempt_id is not null) as "active!",
  (select count(*) from holdfast.sandbox_attempts a where a.stop_unproven_at is not null) as "unproven!"
from holdfast.leases l where l.kind = 'execution';

-- Lanes of Work that have any live item, by a loose scan, and of each: since when its oldest free item is due, how many
-- are out of their line (they are all due at the end of days, and counted up to a cap), and whether a live process runs
-- its version. Every part is a few index probes or an index range of bounded length, whatever waits.
-- name: readWorkLanes :many
with recursive lane(queue) as (
  (select l.queue from holdfast.leases_work l order by l.queue limit 1)
  union all
  select (select l.queue from holdfast.leases_work l where l.queue > n.queue order by l.queue limit 1)
  from lane n where n.queue is not null
), clock(now) as materialized (
  select holdfast.work_execution_now()
)
select (extract(epoch from (select c.now from clock c) - (
    select l.due_at from holdfast.leases_work l
    where l.queue = n.queue and l.due_at <= (select c.now from clock c)
      and (l.holder is null or l.wake_at <= (select c.now from clock c))
    order by l.due_at limit 1)) * 1000)::bigint as "oldest_due_ms?",
  (select count(*) from (
    select from holdfast.leases_work l where l.queue = n.queue and l.due_at >= '9999-12-31T00:00:00Z' limit :cap) s) as "suspended!",
  exists (
    select from holdfast.work_runners r join holdfast.incarnations i using (incarnation_id)
    where r.version_number = split_part(n.queue, '.', 1)::integer and i.ended_at is null
      and i.seen_at > holdfast.ledger_now() - holdfast.microseconds(:within_us)) as "attended!"
from lane n where n.queue is not null limit :limit;

-- How much there is to sample.
-- name: readWorkSize :one
select pg_relation_size('holdfast.leases_work') / current_setting('block_size')::bigint as "pages!";

-- Live items by state, of a part of the pages: parts per million.
-- name: readWorkStates :many
select l.work_state as "state!", count(*) as "items!"
from holdfast.leases_work l tablesample system ((:parts::bigint / 10000.0)::real)
where l.work_state is not null
group by l.work_state;

-- name: readWorkTrouble :one
select (select count(*) from (
    select c.opened_at from holdfast.work_circuits c where c.opened_at is not null limit :cap) o) as "circuits!";

-- Quarantined results by reason, up to a cap.
-- name: readQuarantined :many
select o.reason as "reason!", count(*) as "results!"
from (select q.reason from holdfast.work_observations q limit :cap) o
group by o.reason;
