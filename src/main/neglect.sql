-- What is due for longer than it should be, over all tenants, and who of those that are alive could take it.

-- Waiting jobs wait for a slot.
-- name: listNeglectedLeases :many
select l.kind as "kind!", l.queue as "queue!", count(*) as "count!"
from holdfast.leases l
where l.kind <> 'admission' and l.wake_at < :before
group by l.kind, l.queue
order by min(l.wake_at)
limit :limit;

-- The versions of lanes of Work, and how many live processes run each.
-- name: listNeglectedVersions :many
select v.version_number, v.name, v.version,
  (select count(*) from holdfast.work_runners r join holdfast.incarnations i using (incarnation_id)
   where r.version_number = v.version_number and i.ended_at is null
     and i.seen_at > holdfast.ledger_now() - holdfast.microseconds(:within_us)) as "runners!"
from holdfast.work_versions v
where v.version_number = any(:versions::integer[]);
