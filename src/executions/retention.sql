-- Retention: what is removed when its time has come. A lease of kind 'retention' makes an artifact due.

-- name: readEndingArtifact :maybe
select name, blob_key, retain_until, removed_at from holdfast.artifacts
where tenant_id = holdfast.current_tenant() and job_id = :job;

-- The tombstone: what it was stays, its bytes are gone.
-- name: markArtifactRemoved :exec
update holdfast.artifacts set removed_at = holdfast.ledger_now()
where tenant_id = holdfast.current_tenant() and job_id = :job and removed_at is null
  and retain_until <= holdfast.ledger_now();

-- The job's row, locked until commit, with its next version.
-- name: touchJob :one
update holdfast.jobs set resource_version = resource_version + 1
where tenant_id = holdfast.current_tenant() and job_id = :job
returning resource_version;
