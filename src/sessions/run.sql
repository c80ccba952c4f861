-- Runs of an activation, for the controller that holds its session's lease. Each statement is called under that fence.

-- The first that has not ended, with the template that its present run has, or the one that its next would have.
-- name: readAtWork :maybe
select a.activation_uid, a.activation_id, a.ordinal, a.state, a.cancel_requested_at is not null as "cancel_requested!",
  a.retry_at, a.tries, a.failures, a.base_revision, a.agent_version, a.output_read,
  a.output_fault_code, a.output_fault, a.output_done, a.proposed_by,
  a.candidate_sha256, a.reply, a.required_action, t.template,
  c.verified_at is not null as "candidate_verified!"
from holdfast.activations a
join holdfast.cloud_sessions s on s.tenant_id = a.tenant_id and s.session_id = a.session_id
join holdfast.agent_templates t on t.tenant_id = s.tenant_id and t.agent_id = s.agent_id
  and t.version = case when a.state = 'queued' then s.agent_version else a.agent_version end
left join holdfast.bundle_candidates c on c.tenant_id = a.tenant_id and c.activation_uid = a.activation_uid
  and c.sandbox_id = a.proposed_by and c.sha256 = a.candidate_sha256
where a.tenant_id = holdfast.current_tenant() and a.session_id = :session
  and a.state in ('queued', 'running', 'committing', 'waiting')
order by a.ordinal limit 1;

-- name: lockRun :maybe
select session_id, activation_id, state, cancel_requested_at is not null as "cancel_requested!", tries
from holdfast.activations
where tenant_id = holdfast.current_tenant() and activation_uid = :uid
for no key update;

-- A run begins from the present head, with the template that the session wants now.
-- name: startRun :one
update holdfast.activations
set state = 'running', tries = tries + 1, started_at = holdfast.ledger_now(), retry_at = null, base_revision = :head,
    agent_version = :version, output_sandbox = null, output_read = 0, output_stage = 'begun', output_lines = 0,
    output_bytes = 0, output_rest = '', output_fault_code = null, output_fault = null, output_done = false, proposed_by = null,
    candidate_sha256 = null, reply = null, required_action = null
where tenant_id = holdfast.current_tenant() and activation_uid = :uid and state = 'queued'
returning tries;

-- How far its output is read, and what was understood of it.
-- name: readReading :maybe
select state, output_sandbox, output_read, output_stage, output_lines, output_bytes, output_rest, output_done, proposed_by,
  candidate_sha256, reply, required_action
from holdfast.activations
where tenant_id = holdfast.current_tenant() and activation_uid = :uid;

-- Only from where the caller believed that to be: a replay finds it further on and changes nothing.
-- name: recordReading :exec
-- null: fault_code, fault, proposed_by, candidate, reply, required_action
update holdfast.activations
set output_sandbox = :sandbox, output_read = :read, output_stage = :stage, output_lines = :lines, output_bytes = :bytes,
    output_rest = :rest, output_fault_code = :fault_code, output_fault = :fault, output_done = :done,
    proposed_by = :proposed_by, candidate_sha256 = :candidate, reply = :reply, required_action = :required_action
where tenant_id = holdfast.current_tenant() and activation_uid = :uid and state = 'running' and output_read = :after
  and not output_done;

-- What the agent said as it went, each a change of the activation. An event that takes more room as jsonb than a change
-- has is kept as the text that it was.
-- name: appendEvents :exec
with moved as (
  update holdfast.activations
  set resource_version = resource_version + cardinality(:names::text[]), events = events + cardinality(:names::text[])
  where tenant_id = holdfast.current_tenant() and activation_uid = :uid
  returning session_id, activation_id, activation_uid, tries, resource_version - cardinality(:names::text[]) as version,
    events - cardinality(:names::text[]) as number
)
insert into holdfast.resource_changes (tenant_id, kind, resource_id, root_id, resource_version, operation, body)
select holdfast.current_tenant(), 'activation', m.activation_uid, m.session_id, m.version + e.n, 'activation.event',
  jsonb_build_object('session_id', m.session_id, 'activation_id', m.activation_id, 'run', m.tries, 'event', m.number + e.n,
    'name', e.name, 'data', case when pg_column_size(e.data::jsonb) <= 24576 then e.data::jsonb else to_jsonb(e.data) end)
from moved m, unnest(:names::text[], :datas::text[]) with ordinality as e(name, data, n)
order by e.n;

-- Where a run goes without an end: `committing`, `waiting`, or `queued` to run again.
-- name: moveActivation :exec
-- null: retry_at, failure_code, failure_message
update holdfast.activations
set state = :state, retry_at = :retry_at,
    failures = failures + (case when :failure_code::text is null then 0 else 1 end),
    last_failure_code = coalesce(:failure_code, last_failure_code),
    last_failure_message = coalesce(:failure_message, last_failure_message),
    proposed_by = case when :state = 'queued' then null else proposed_by end,
    candidate_sha256 = case when :state = 'queued' then null else candidate_sha256 end,
    reply = case when :state = 'queued' then null else reply end,
    required_action = case when :state = 'queued' then null else required_action end
where tenant_id = holdfast.current_tenant() and activation_uid = :uid;

-- name: endActivation :exec
-- null: failure_code, failure_message
update holdfast.activations
set state = :state, finished_at = holdfast.ledger_now(), failure_code = :failure_code, failure_message = :failure_message
where tenant_id = holdfast.current_tenant() and activation_uid = :uid;

-- Every change of an activation moves its version; the row is locked from here to commit.
-- name: recordEvent :exec
with moved as (
  update holdfast.activations set resource_version = resource_version + 1
  where tenant_id = holdfast.current_tenant() and activation_uid = :uid
  returning session_id, activation_id, activation_uid, resource_version
)
insert into holdfast.resource_changes (tenant_id, kind, resource_id, root_id, resource_version, operation, body)
select holdfast.current_tenant(), 'activation', m.activation_uid, m.session_id, m.resource_version, :operation,
  jsonb_build_object('session_id', m.session_id, 'activation_id', m.activation_id) || :details::jsonb
from moved m;

-- The bytes are in the store, with the promised length and digest.
-- name: verifyCandidate :exec
update holdfast.bundle_candidates set verified_at = holdfast.ledger_now()
where tenant_id = holdfast.current_tenant() and activation_uid = :uid and sandbox_id = :sandbox and sha256 = :sha256
  and verified_at is null and removed_at is null;

-- name: readProposedCandidate :maybe
select c.sandbox_id, c.sha256, c.bytes, c.blob_key, c.verified_at is not null as "verified!"
from holdfast.activations a
join holdfast.bundle_candidates c on c.tenant_id = a.tenant_id and c.activation_uid = a.activation_uid
  and c.sandbox_id = a.proposed_by and c.sha256 = a.candidate_sha256
where a.tenant_id = holdfast.current_tenant() and a.activation_uid = :uid;

-- All six of a checkpoint, or nothing of it (S7). The function stands in migrations/0010_bundles_and_checkpoints.sql.
-- name: commitCheckpoint :one
select holdfast.commit_checkpoint(:session, :uid, :holder, :epoch, :expected_head, :destinations::text[]) as "revision!";

-- name: readRunTemplate :maybe
select agent_version from holdfast.activations
where tenant_id = holdfast.current_tenant() and activation_uid = :uid;
