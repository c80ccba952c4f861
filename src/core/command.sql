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

-- Newest first, after the last of the page before. No payload: what was sent is kept as a digest alone.
-- name: listCommands :many
-- null: principal, operation, target, after_created_at, after_command
select c.command_id, c.principal_id, p.name as principal, c.operation, c.target, c.idempotency_key, c.request_id,
  c.traceparent, c.created_at, c.response_status as "response_status!"
from holdfast.commands c
join holdfast.principals p on p.tenant_id = c.tenant_id and p.principal_id = c.principal_id
where c.tenant_id = holdfast.current_tenant() and c.response_status is not null
  and (:principal::text is null or p.name = :principal)
  and (:operation::text is null or c.operation = :operation)
  and (:target::text is null or c.target = :target)
  and (:after_created_at::timestamptz is null or (c.created_at, c.command_id) < (:after_created_at, :after_command::uuid))
order by c.created_at desc, c.command_id desc
limit :limit;

-- name: readCommand :maybe
select c.command_id, c.principal_id, p.name as principal, c.operation, c.target, c.idempotency_key, c.request_id,
  c.traceparent, c.created_at, c.response_status as "response_status!"
from holdfast.commands c
join holdfast.principals p on p.tenant_id = c.tenant_id and p.principal_id = c.principal_id
where c.tenant_id = holdfast.current_tenant() and c.command_id = :command;

-- Row-level security shows this role what is older than 30 days, over all tenants, and nothing else.
-- name: removeExpiredCommands :exec
delete from holdfast.commands
where (tenant_id, command_id) in (
  select tenant_id, command_id from holdfast.commands
  where created_at < holdfast.ledger_now() - holdfast.microseconds(:retention_us)
  limit :batch);
