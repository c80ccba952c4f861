-- Incarnations: one row for each run of each process. Their heartbeat is in lease.sql, with the renewals.

-- name: registerIncarnation :exec
insert into holdfast.incarnations (incarnation_id, process, release, schema_minimum, schema_maximum, deployment_epoch)
values (:incarnation, :process, :release, :schema_minimum, :schema_maximum, :deployment_epoch);

-- name: endIncarnation :exec
update holdfast.incarnations set ended_at = holdfast.ledger_now()
where incarnation_id = :incarnation and ended_at is null;

-- A process that can run sandboxes says with what.
-- name: announceRuntimes :exec
update holdfast.incarnations set runtimes = :runtimes
where incarnation_id = :incarnation and ended_at is null;

-- What the controllers have that have not ended and were seen lately.
-- name: liveRuntimes :many
select distinct r.runtime as "runtime!"
from holdfast.incarnations i cross join unnest(i.runtimes) as r(runtime)
where i.ended_at is null and i.seen_at > (select holdfast.ledger_now()) - interval '2 minutes'
order by 1;

-- Those that have not ended and were seen within a time.
-- name: liveIncarnations :many
select incarnation_id, process, release, schema_minimum, schema_maximum, deployment_epoch, started_at, seen_at
from holdfast.incarnations
where ended_at is null and seen_at > (select holdfast.ledger_now()) - holdfast.microseconds(:within_us)
order by started_at, incarnation_id;
