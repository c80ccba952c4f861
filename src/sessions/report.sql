-- What the sandbox of an activation asks for. Its fence is the sandbox itself; its activation is locked before it.

-- The activation at work, locked until commit, as parent before its sandboxes.
-- name: lockReporting :maybe
select a.session_id, a.activation_id, a.ordinal, a.content, a.state, a.base_revision, a.tries, s.permissions
from holdfast.activations a
join holdfast.cloud_sessions s on s.tenant_id = a.tenant_id and s.session_id = a.session_id
where a.tenant_id = holdfast.current_tenant() and a.activation_uid = :activation
for no key update of a;

-- What the run began from: no row while the session has no revision, no content while it has no bundle.
-- name: readBase :maybe
select revision, blob_key, bytes, sha256 from holdfast.bundle_revisions
where tenant_id = holdfast.current_tenant() and session_id = :session and revision = :revision;

-- name: readCandidate :maybe
select blob_key, bytes, sha256, verified_at, removed_at from holdfast.bundle_candidates
where tenant_id = holdfast.current_tenant() and activation_uid = :activation and sandbox_id = :sandbox and sha256 = :sha256;

-- name: countCandidates :one
select count(*)::integer as "count!" from holdfast.bundle_candidates
where tenant_id = holdfast.current_tenant() and activation_uid = :activation and sandbox_id = :sandbox;

-- name: insertCandidate :exec
insert into holdfast.bundle_candidates (tenant_id, activation_uid, sandbox_id, sha256, bytes, blob_key)
values (holdfast.current_tenant(), :activation, :sandbox, :sha256, :bytes, :blob_key);
