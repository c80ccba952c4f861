-- Phases of an attempt, the pins that its sources resolved to, and what they report.

-- name: listPhases :many
select number, name, kind, state, failure_code, failure_message from holdfast.execution_phases
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt order by number;

-- Refused by the database while a pin is missing, unless it is a source phase (E9).
-- name: startPhase :exec
update holdfast.execution_phases set state = 'running', started_at = holdfast.ledger_now()
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt and name = :phase and state = 'pending';

-- name: endPhase :exec
-- null: failure_code, failure_message
update holdfast.execution_phases
set state = :state, failure_code = :failure_code, failure_message = :failure_message, finished_at = holdfast.ledger_now()
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt and name = :phase and state = 'running';

-- name: skipPendingPhases :exec
update holdfast.execution_phases set state = 'skipped', finished_at = holdfast.ledger_now()
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt and state = 'pending';

-- name: readPhaseKind :maybe
select kind, state from holdfast.execution_phases
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt and name = :phase;

-- name: listPins :many
select source, commit_id from holdfast.source_pins
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt order by source;

-- A pin is written once. The same one again changes nothing; another is seen by its caller.
-- name: insertPin :maybe
insert into holdfast.source_pins (tenant_id, attempt_id, source, commit_id, sandbox_id)
values (holdfast.current_tenant(), :attempt, :source, :commit, :sandbox)
on conflict (tenant_id, attempt_id, source) do nothing
returning source;

-- name: reportProgress :exec
-- null: percent
update holdfast.execution_phases set progress_message = :message, progress_percent = :percent
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt and name = :phase and state = 'running'
  and (progress_message is distinct from :message or progress_percent is distinct from :percent);

-- name: reportResult :exec
update holdfast.execution_phases set result = :result
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt and name = :phase and state = 'running' and result is null;

-- name: readResult :maybe
select result from holdfast.execution_phases
where tenant_id = holdfast.current_tenant() and attempt_id = :attempt and name = :phase;
