-- Commands: what was asked, by whom, and what was answered.

-- The first use of a key wins; a second one waits here for the first to commit, and then finds it.
-- name: insertCommand :maybe
-- null: idempotency_key, request_id
insert into holdfast.commands (tenant_id, command_id, principal_id, idempotency_key, operation, target, fingerprint, request_id)
values (holdfast.current_tenant(), :command, :principal, :idempotency_key, :operation, :target, :fingerprint, :request_id)
on conflict on constraint commands_key_taken do nothing
returning command_id;

-- name: readCommandByKey :maybe
select command_id, operation, target, fingerprint, response_status, response_body, response_etag
from holdfast.commands
where tenant_id = holdfast.current_tenant() and principal_id = :principal and idempotency_key = :idempotency_key;

-- name: answerCommand :exec
-- null: body, etag
update holdfast.commands set response_status = :status, response_body = :body, response_etag = :etag
where tenant_id = holdfast.current_tenant() and command_id = :command;
