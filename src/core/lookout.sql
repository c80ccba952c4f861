-- The one question that an idle process asks, about everything that its loops wait for. No payload.

-- One row for each (kind, queue) that has any lease, with the time of the first to be due (two for Work), and at
-- least one row. Every part is a few index probes, whatever the number of rows: queues are found by a loose scan.
-- name: look :many
with recursive line(kind, queue) as (
  select a.kind, (select l.queue from holdfast.leases l where l.kind = a.kind order by l.queue limit 1)
  from unnest(:kinds::text[]) as a(kind)
  union all
  select n.kind, (
    select l.queue from holdfast.leases l where l.kind = n.kind and l.queue > n.queue order by l.queue limit 1)
  from line n where n.queue is not null
), clock(now) as materialized (
  select holdfast.ledger_now()
), first(kind, queue, wake_at) as (
  select n.kind, n.queue, (
    select l.wake_at from holdfast.leases l
    where l.kind = n.kind and l.queue = n.queue order by l.wake_at limit 1)
  from line n where n.queue is not null and n.kind <> 'work'
  union all
  -- Work is indexed by due_at, so what is held counts as due: a claim passes over it. Behind it stands the next one.
  select n.kind, n.queue, (select l.due_at from holdfast.leases_work l where l.queue = n.queue order by l.due_at limit 1)
  from line n where n.queue is not null and n.kind = 'work'
  union all
  select n.kind, n.queue, (
    select l.due_at from holdfast.leases_work l
    where l.queue = n.queue and l.due_at > (select c.now from clock c) order by l.due_at limit 1)
  from line n where n.queue is not null and n.kind = 'work'
), here as (
  select k.now, c.position,
    exists (select from holdfast.resource_changes r where r.position is null) as unstamped
  from holdfast.change_counter c cross join clock k
)
select here.now as "now!", here.position as "position!", here.unstamped as "unstamped!",
  first.kind as "kind?", first.queue as "queue?", first.wake_at as "wake_at?"
from here left join first on true;
