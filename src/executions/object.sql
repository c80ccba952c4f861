-- Objects that phases hand to each other, and the artifact that one of them becomes.

-- Promised with length and digest before the bytes come.
-- name: insertObject :maybe
insert into holdfast.attempt_objects
  (tenant_id, attempt_id, phase, name, blob_key, bytes, sha256, media_type, sandbox_id)
values (holdfast.current_tenant(), :attempt, :phase, :name, :blob_key, :bytes, :sha256, :media_type, :sandbox)
on conflict (tenant_id, attempt_id, phase, name) do nothing
returning name;

-- name: readObject :maybe
select phase, name, blob_key, bytes, sha256, media_type, stored_at, removed_at from holdfast.attempt_objects
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt and phase = :phase and name = :name;

-- name: countObjects :one
select count(*) as "count!" from holdfast.attempt_objects
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt and phase = :phase;

-- name: storeObject :exec
update holdfast.attempt_objects set stored_at = holdfast.ledger_now()
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt and phase = :phase and name = :name and stored_at is null;

-- name: declareArtifact :exec
update holdfast.execution_attempts set artifact_object = :object, artifact_manifest = :manifest
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt and state = 'active' and artifact_object is null;

-- The declared artifact: an object of the publish phase that is stored.
-- name: readDeclaredArtifact :maybe
select o.name, o.blob_key, o.bytes, o.sha256, o.media_type, o.stored_at, a.artifact_manifest as "manifest"
from holdfast.execution_attempts a
join holdfast.execution_phases p on p.tenant_id = a.tenant_id and p.attempt_id = a.attempt_id and p.kind = 'publish'
join holdfast.attempt_objects o on o.tenant_id = a.tenant_id and o.attempt_id = a.attempt_id
  and o.phase = p.name and o.name = a.artifact_object
where a.tenant_id = holdfast.current_tenant() and a.attempt_id = :attempt;

-- name: publishArtifact :exec
insert into holdfast.artifacts (tenant_id, job_id, name, blob_key, bytes, sha256, media_type, manifest, published_at, retain_until)
values (holdfast.current_tenant(), :job, :name, :blob_key, :bytes, :sha256, :media_type, :manifest,
  :published_at, :published_at::timestamptz + holdfast.microseconds(:retention_us));

-- What cleaning removes: every object that no published artifact refers to.
-- name: listObjectsToRemove :many
select o.phase, o.name, o.blob_key from holdfast.attempt_objects o
where o.tenant_id = holdfast.current_tenant() and o.attempt_id = :attempt and o.removed_at is null
  and not exists (select from holdfast.artifacts r where r.tenant_id = o.tenant_id and r.blob_key = o.blob_key);

-- name: markObjectRemoved :exec
update holdfast.attempt_objects set removed_at = holdfast.ledger_now()
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt and phase = :phase and name = :name and removed_at is null;
