-- Sandbox attempts: one external object each. The model stands in migrations/0006_sandboxes.sql.
-- Each statement that moves one is called under its owner's fence, with the owner's row locked.

-- name: insertSandbox :exec
insert into holdfast.sandbox_attempts
  (tenant_id, sandbox_id, owner_kind, owner_id, step, ordinal, name, runtime, spec, spec_digest, deadline)
values (holdfast.current_tenant(), :sandbox, :owner_kind, :owner, :step, :ordinal, :name, :runtime, :spec, :spec_digest, :deadline);

-- name: listSandboxes :many
select sandbox_id, owner_kind, owner_id, step, ordinal, name, runtime, state, uid, deadline, planned_at, released_at,
  stopped_at, removed_at, stop_reason, outcome, exit_code, outcome_message, stop_unproven_at,
  log_cursor, log_seq, log_bytes, log_truncated_at is not null as "log_truncated!",
  (log_complete_at is not null or log_lost_reason is not null) as "log_settled!"
from holdfast.sandbox_attempts
where tenant_id = holdfast.current_tenant() and owner_kind = :owner_kind and owner_id = :owner
order by planned_at, sandbox_id;

-- name: readSandboxSpec :one
select spec, spec_digest from holdfast.sandbox_attempts
where tenant_id = holdfast.current_tenant() and sandbox_id = :sandbox;

-- name: readSandboxOwner :maybe
select owner_kind, owner_id, step, deadline from holdfast.sandbox_attempts
where tenant_id = holdfast.current_tenant() and sandbox_id = :sandbox;

-- The UID that the outside gave, before anything may start (E7: write_once refuses another).
-- name: holdSandbox :exec
update holdfast.sandbox_attempts
set state = 'held', uid = :uid, held_at = holdfast.ledger_now()
where tenant_id = holdfast.current_tenant() and sandbox_id = :sandbox and state = 'planned';

-- From here on it may run, whatever happens to whoever says so next.
-- name: releaseSandbox :exec
update holdfast.sandbox_attempts
set state = 'released', released_at = holdfast.ledger_now()
where tenant_id = holdfast.current_tenant() and sandbox_id = :sandbox and state = 'held';

-- name: stopSandbox :exec
update holdfast.sandbox_attempts
set state = 'stopping', stopping_at = holdfast.ledger_now(), stop_reason = :reason
where tenant_id = holdfast.current_tenant() and sandbox_id = :sandbox and state in ('held', 'released');

-- Stopped, with the evidence for it.
-- name: proveSandboxStopped :exec
-- null: exit_code
update holdfast.sandbox_attempts
set state = 'stopped', stopped_at = holdfast.ledger_now(), stop_proof = :proof,
    outcome = :outcome, exit_code = :exit_code, outcome_message = :message,
    stop_unproven_at = null, stop_unproven_reason = null
where tenant_id = holdfast.current_tenant() and sandbox_id = :sandbox and state in ('planned', 'held', 'released', 'stopping');

-- The world can't be asked: since the first time that it couldn't.
-- name: markStopUnproven :exec
update holdfast.sandbox_attempts
set stop_unproven_at = coalesce(stop_unproven_at, holdfast.ledger_now()), stop_unproven_reason = :reason
where tenant_id = holdfast.current_tenant() and sandbox_id = :sandbox
  and state in ('held', 'released', 'stopping') and stop_unproven_reason is distinct from :reason;

-- The world answers again, and it has not stopped: nothing is in question any more.
-- name: clearStopUnproven :exec
update holdfast.sandbox_attempts
set stop_unproven_at = null, stop_unproven_reason = null
where tenant_id = holdfast.current_tenant() and sandbox_id = :sandbox
  and state in ('held', 'released', 'stopping') and stop_unproven_at is not null;

-- An operator says that it has stopped, where the world can't be asked. What kept it from being proven stays on record.
-- name: overrideStop :exec
update holdfast.sandbox_attempts
set state = 'stopped', stopped_at = holdfast.ledger_now(), outcome = 'unknown', outcome_message = :message, overridden_by = :principal
where tenant_id = holdfast.current_tenant() and sandbox_id = :sandbox
  and state in ('held', 'released', 'stopping') and stop_unproven_at is not null;

-- name: removeSandbox :exec
update holdfast.sandbox_attempts
set state = 'removed', removed_at = holdfast.ledger_now()
where tenant_id = holdfast.current_tenant() and sandbox_id = :sandbox and state = 'stopped';

-- Locks the sandbox and refuses it unless it may still report (HF006).
-- name: assertSandboxReports :exec
select holdfast.assert_sandbox_reports(:sandbox);
