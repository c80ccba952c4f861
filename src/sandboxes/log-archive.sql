-- Archived output: one blob an owner. Recorded before the chunks go; its row stays when the blob is removed (E19).

-- `stored`: chunks that are in no archive yet. `archived`: chunks that are in one and can go.
-- name: readOutputState :one
select
  exists (
    select from holdfast.sandbox_attempts s
    join holdfast.log_chunks c on c.tenant_id = s.tenant_id and c.sandbox_id = s.sandbox_id
    where s.tenant_id = holdfast.current_tenant() and s.owner_kind = :owner_kind and s.owner_id = :owner) as "chunks!",
  exists (
    select from holdfast.log_archives a
    where a.tenant_id = holdfast.current_tenant() and a.owner_kind = :owner_kind and a.owner_id = :owner) as "archived!";

-- name: recordLogArchive :exec
insert into holdfast.log_archives (tenant_id, owner_kind, owner_id, blob_key, bytes, sha256, lines, archived_at, retain_until)
values (holdfast.current_tenant(), :owner_kind, :owner, :blob_key, :bytes, :sha256, :lines, :archived_at,
  :archived_at::timestamptz + holdfast.microseconds(:retention_us))
on conflict (tenant_id, owner_kind, owner_id) do nothing;

-- name: readLogArchive :maybe
select blob_key, bytes, sha256, retain_until, removed_at from holdfast.log_archives
where tenant_id = holdfast.current_tenant() and owner_kind = :owner_kind and owner_id = :owner;

-- All of a sandbox's chunks at once: never only some of them are gone. Refused while there is no archive.
-- name: deleteLogChunks :exec
delete from holdfast.log_chunks where tenant_id = holdfast.current_tenant() and sandbox_id = :sandbox;

-- The tombstone: what it was stays, its bytes are gone.
-- name: markLogArchiveRemoved :exec
update holdfast.log_archives set removed_at = holdfast.ledger_now()
where tenant_id = holdfast.current_tenant() and owner_kind = :owner_kind and owner_id = :owner
  and removed_at is null and retain_until <= holdfast.ledger_now();
