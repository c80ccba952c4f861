-- What is always true of sandboxes and their output. A row for each thing that is wrong, none when all is well.

-- name: heldSandboxHasUid :many
select s.name as "resource!", format('it is %s and has no UID', s.state) as "problem!"
from holdfast.sandbox_attempts s
where s.tenant_id = holdfast.current_tenant() and s.uid is null
  and (s.state in ('held', 'released', 'stopping') or s.held_at is not null or s.released_at is not null)
limit :limit;

-- name: uidIsOneSandboxes :many
select string_agg(s.name, ', ') as "resource!",
  format('they have the same UID %s on the runtime %s', s.uid, s.runtime) as "problem!"
from holdfast.sandbox_attempts s
where s.tenant_id = holdfast.current_tenant() and s.uid is not null
group by s.runtime, s.uid having count(*) > 1
limit :limit;

-- name: stepStartsOnce :many
select s.owner_id || '/' || s.step as "resource!",
  format('%s of its sandboxes were released: %s', count(*), string_agg(s.name, ', ')) as "problem!"
from holdfast.sandbox_attempts s
where s.tenant_id = holdfast.current_tenant() and s.released_at is not null
group by s.owner_kind, s.owner_id, s.step having count(*) > 1
limit :limit;

-- name: ownerHasOneAlive :many
select s.owner_id::text as "resource!",
  format('%s of its sandboxes are not proven stopped: %s', count(*), string_agg(s.name, ', ')) as "problem!"
from holdfast.sandbox_attempts s
where s.tenant_id = holdfast.current_tenant() and s.state in ('planned', 'held', 'released', 'stopping')
group by s.owner_kind, s.owner_id having count(*) > 1
limit :limit;

-- name: sandboxTimesAscend :many
select s.name as "resource!",
  format('it is %s, with the times planned %s, held %s, released %s, stopping %s, stopped %s, removed %s', s.state,
    s.planned_at, s.held_at, s.released_at, s.stopping_at, s.stopped_at, s.removed_at) as "problem!"
from holdfast.sandbox_attempts s
where s.tenant_id = holdfast.current_tenant() and (
  not (s.planned_at <= coalesce(s.held_at, s.planned_at)
    and coalesce(s.held_at, s.planned_at) <= coalesce(s.released_at, s.held_at, s.planned_at)
    and coalesce(s.released_at, s.held_at, s.planned_at) <= coalesce(s.stopping_at, s.stopped_at, 'infinity')
    and coalesce(s.stopping_at, s.planned_at) <= coalesce(s.stopped_at, 'infinity')
    and coalesce(s.stopped_at, s.planned_at) <= coalesce(s.removed_at, 'infinity'))
  or (s.state = 'planned') <> (s.held_at is null and s.stopped_at is null)
  or (s.released_at is not null and s.held_at is null)
  or (s.state = 'released' and s.stopping_at is not null)
  or (s.state = 'stopping' and s.stopping_at is null)
  or (s.state in ('stopped', 'removed')) <> (s.stopped_at is not null)
  or (s.state = 'removed') <> (s.removed_at is not null))
limit :limit;

-- name: stopIsProven :many
select s.name as "resource!",
  case when s.stop_unproven_at is not null then format('it is %s, and its stop is unproven since %s', s.state, s.stop_unproven_at)
    else format('it is %s without proof and without an override', s.state) end as "problem!"
from holdfast.sandbox_attempts s
where s.tenant_id = holdfast.current_tenant() and s.state in ('stopped', 'removed') and s.overridden_by is null
  and (s.stop_proof is null or s.stop_unproven_at is not null)
limit :limit;

-- Chunks may be gone, all of them, once they are archived or their retention ended; never some of them (E15, E19).
-- name: logIsWhole :many
select s.name as "resource!",
  format('%s chunks from %s to %s with %s bytes are stored, but its record says %s chunks with %s bytes', c.chunks,
    c.first, c.last, c.bytes, s.log_seq, s.log_bytes) as "problem!"
from holdfast.sandbox_attempts s
join (
  select k.sandbox_id, count(*) as chunks, min(k.seq) as first, max(k.seq) as last, sum(octet_length(k.body)) as bytes
  from holdfast.log_chunks k where k.tenant_id = holdfast.current_tenant() group by k.sandbox_id
) c on c.sandbox_id = s.sandbox_id
where s.tenant_id = holdfast.current_tenant()
  and (c.first <> 1 or c.last <> s.log_seq or c.chunks <> s.log_seq or c.bytes <> s.log_bytes)
limit :limit;

-- What was stored is in chunks or in an archive that is recorded, whenever it moved (E19).
-- name: outputIsKept :many
select s.name as "resource!",
  format('%s chunks were stored, and neither they nor an archive of them is there', s.log_seq) as "problem!"
from holdfast.sandbox_attempts s
where s.tenant_id = holdfast.current_tenant() and s.log_seq > 0
  and not exists (
    select from holdfast.log_chunks c where c.tenant_id = s.tenant_id and c.sandbox_id = s.sandbox_id)
  and not exists (
    select from holdfast.log_archives a
    where a.tenant_id = s.tenant_id and a.owner_kind = s.owner_kind and a.owner_id = s.owner_id)
limit :limit;

-- Kept until its retention ends, and not long after.
-- name: logRetentionHolds :many
select a.owner_id::text as "resource!",
  case when a.removed_at is not null then format('its output was removed at %s, but is to be kept until %s', a.removed_at, a.retain_until)
    else format('the retention of its output ended at %s, and it is still there', a.retain_until) end as "problem!"
from holdfast.log_archives a
where a.tenant_id = holdfast.current_tenant() and (a.removed_at < a.retain_until
  or (a.removed_at is null and a.retain_until < (select holdfast.ledger_now()) - interval '1 hour'))
limit :limit;

-- For the digests, which SQL can't compute: in order, after the last of the page before.
-- name: pageSandboxSpecs :many
-- null: after
select s.sandbox_id, s.name, s.spec, s.spec_digest from holdfast.sandbox_attempts s
where s.tenant_id = holdfast.current_tenant() and (:after::uuid is null or s.sandbox_id > :after)
order by s.sandbox_id
limit :limit;
