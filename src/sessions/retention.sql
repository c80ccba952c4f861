-- What is removed when its time has come: the bundles of deleted sessions, and output of activations.

-- The session's row, locked until commit, with its next version.
-- name: touchSession :one
update holdfast.cloud_sessions set resource_version = resource_version + 1
where tenant_id = holdfast.current_tenant() and session_id = :session
returning resource_version, deleted_at;

-- The bytes that no other session has, of a session that is deleted.
-- name: listBundlesToRemove :many
select distinct r.blob_key as "blob_key!" from holdfast.bundle_revisions r
where r.tenant_id = holdfast.current_tenant() and r.session_id = :session and r.removed_at is null and r.blob_key is not null
  and not exists (
    select from holdfast.bundle_revisions o
    where o.tenant_id = r.tenant_id and o.blob_key = r.blob_key and o.session_id <> r.session_id and o.removed_at is null);

-- The tombstones: what was remembered stays on record, its bytes are gone.
-- name: markBundlesRemoved :exec
update holdfast.bundle_revisions set removed_at = holdfast.ledger_now()
where tenant_id = holdfast.current_tenant() and session_id = :session and removed_at is null;

-- Of a tenant's removals of bundles, one is recorded at a time.
-- name: lockRemovals :exec
select pg_advisory_xact_lock(hashtextextended('holdfast bundles ' || holdfast.current_tenant(), 0));
