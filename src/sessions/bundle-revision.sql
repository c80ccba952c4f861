-- Revisions of sessions' bundles, each with the activation that committed it.

-- Newest first, after the last of the page before.
-- name: listRevisions :many
-- null: before
select r.session_id, r.revision, r.bytes, r.sha256, r.blob_key, r.committed_at, r.removed_at, r.forked_session, r.forked_revision,
  a.activation_id as "activation_id?"
from holdfast.bundle_revisions r
left join holdfast.checkpoints c on c.tenant_id = r.tenant_id and c.session_id = r.session_id and c.revision = r.revision
left join holdfast.activations a on a.tenant_id = c.tenant_id and a.activation_uid = c.activation_uid
where r.tenant_id = holdfast.current_tenant() and r.session_id = :session and (:before::bigint is null or r.revision < :before)
order by r.revision desc
limit :limit;

-- name: readRevision :maybe
select r.session_id, r.revision, r.bytes, r.sha256, r.blob_key, r.committed_at, r.removed_at, r.forked_session, r.forked_revision,
  a.activation_id as "activation_id?"
from holdfast.bundle_revisions r
left join holdfast.checkpoints c on c.tenant_id = r.tenant_id and c.session_id = r.session_id and c.revision = r.revision
left join holdfast.activations a on a.tenant_id = c.tenant_id and a.activation_uid = c.activation_uid
where r.tenant_id = holdfast.current_tenant() and r.session_id = :session and r.revision = :revision;

-- The first revision of a session that begins as a copy: the same bytes, which stay while any of the two has them.
-- The row of the session that it is copied from is locked before, so that retention does not remove them meanwhile.
-- name: forkRevision :exec
insert into holdfast.bundle_revisions (tenant_id, session_id, revision, blob_key, bytes, sha256, forked_session, forked_revision)
select r.tenant_id, :session, 1, r.blob_key, r.bytes, r.sha256, r.session_id, r.revision
from holdfast.bundle_revisions r
where r.tenant_id = holdfast.current_tenant() and r.session_id = :from_session and r.revision = :from_revision
  and r.removed_at is null;

-- name: setFirstHead :exec
update holdfast.cloud_sessions set head_revision = 1
where tenant_id = holdfast.current_tenant() and session_id = :session and head_revision = 0;
