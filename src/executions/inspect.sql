-- What can be seen of a job: its attempts with phases, pins and sandboxes, its artifacts, its output.

-- name: listAttempts :many
select a.attempt_id, a.job_id, a.ordinal, a.pool, a.plan_digest, a.state, a.started_at, a.deadline, a.outcome,
  a.failure_code, a.failure_message, a.finished_at, a.cleaned_at, a.resource_version,
  l.lines as log_lines, l.bytes as log_bytes, l.sha256 as log_sha256, l.archived_at as log_archived_at,
  l.retain_until as log_retain_until, l.removed_at as log_removed_at
from holdfast.execution_attempts a
left join holdfast.log_archives l on l.tenant_id = a.tenant_id and l.owner_kind = 'execution' and l.owner_id = a.attempt_id
where a.tenant_id = holdfast.current_tenant() and a.job_id = :job
order by a.ordinal;

-- What the attempt that is not over runs with.
-- name: readActiveRuntime :maybe
select a.plan ->> 'runtime' as "runtime!" from holdfast.execution_attempts a
where a.tenant_id = holdfast.current_tenant() and a.job_id = :job and a.state = 'active';

-- name: listPhases :many
select p.attempt_id, p.number, p.name, p.kind, p.state, p.started_at, p.finished_at, p.failure_code, p.failure_message, p.progress_message,
  p.progress_percent, p.result
from holdfast.execution_phases p
where p.tenant_id = holdfast.current_tenant() and p.attempt_id = any (:attempts)
order by p.attempt_id, p.number;

-- name: listPins :many
select p.attempt_id, p.source, p.commit_id from holdfast.source_pins p
where p.tenant_id = holdfast.current_tenant() and p.attempt_id = any (:attempts)
order by p.attempt_id, p.source;

-- name: listAttemptSandboxes :many
select s.sandbox_id, s.owner_id, s.step, s.name, s.runtime, s.uid, s.state, s.planned_at, s.held_at, s.released_at,
  s.stopping_at, s.stop_reason, s.stopped_at, s.stop_proof, s.removed_at, s.outcome, s.exit_code, s.outcome_message,
  s.stop_unproven_at, s.stop_unproven_reason, s.overridden_by, s.log_bytes, s.log_truncated_at
from holdfast.sandbox_attempts s
where s.tenant_id = holdfast.current_tenant() and s.owner_kind = 'execution' and s.owner_id = any (:attempts)
order by s.owner_id, s.planned_at, s.sandbox_id;

-- name: listArtifacts :many
select a.job_id, a.name, a.bytes, a.sha256, a.media_type, a.published_at, a.retain_until, a.removed_at, a.manifest
from holdfast.artifacts a
where a.tenant_id = holdfast.current_tenant() and a.job_id = :job
order by a.name;

-- name: readArtifact :maybe
select a.name, a.blob_key, a.bytes, a.sha256, a.media_type, a.removed_at
from holdfast.artifacts a
where a.tenant_id = holdfast.current_tenant() and a.job_id = :job and a.name = :name;

-- What an attempt was going to do, kept for good (E14).
-- name: readPlan :maybe
select a.plan, a.plan_digest from holdfast.execution_attempts a
where a.tenant_id = holdfast.current_tenant() and a.job_id = :job and a.ordinal = :ordinal;

-- The sandboxes whose output makes up a job's, in reading order, with the archive of their attempt when there is
-- one: then that has all of it. Nothing is added to a settled one any more.
-- name: listLogSources :many
-- null: attempt, phase
select a.ordinal as attempt, p.number as phase_number, p.name as phase, s.ordinal as sandbox_ordinal, s.sandbox_id,
  (s.log_complete_at is not null or s.log_lost_reason is not null
    or (s.uid is null and s.state in ('stopped', 'removed'))) as "settled!",
  l.blob_key, l.bytes as blob_bytes, l.sha256 as blob_sha256, l.removed_at
from holdfast.execution_attempts a
join holdfast.execution_phases p on p.tenant_id = a.tenant_id and p.attempt_id = a.attempt_id
join holdfast.sandbox_attempts s on s.tenant_id = a.tenant_id and s.owner_kind = 'execution'
  and s.owner_id = a.attempt_id and s.step = p.name
left join holdfast.log_archives l on l.tenant_id = a.tenant_id and l.owner_kind = 'execution' and l.owner_id = a.attempt_id
where a.tenant_id = holdfast.current_tenant() and a.job_id = :job
  and (:attempt::smallint is null or a.ordinal = :attempt)
  and (:phase::text is null or p.name = :phase)
order by a.ordinal, p.number, s.ordinal;

-- name: readLogChunks :many
-- null: since
select c.seq, c.stream, c.at, c.body from holdfast.log_chunks c
where c.tenant_id = holdfast.current_tenant() and c.sandbox_id = :sandbox and c.seq >= :from_seq
  and (:since::timestamptz is null or c.at >= :since)
order by c.seq
limit :limit;

-- The last ones before a place, for whoever wants the last lines.
-- name: readLogChunksBefore :many
-- null: before, since
select c.seq, c.stream, c.at, c.body from holdfast.log_chunks c
where c.tenant_id = holdfast.current_tenant() and c.sandbox_id = :sandbox
  and (:before::bigint is null or c.seq < :before)
  and (:since::timestamptz is null or c.at >= :since)
order by c.seq desc
limit :limit;
