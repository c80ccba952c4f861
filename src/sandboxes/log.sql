-- Output of sandboxes: chunks in order. (sandbox, seq) makes a replay change nothing (E15).

-- name: insertLogChunks :exec
insert into holdfast.log_chunks (tenant_id, sandbox_id, seq, stream, at, body)
select holdfast.current_tenant(), :sandbox, :after_seq + n, stream, at, body
from unnest(:streams::text[], :ats::timestamptz[], :bodies::text[]) with ordinality as chunk(stream, at, body, n)
on conflict (tenant_id, sandbox_id, seq) do nothing;

-- Only from where the caller believed to be: a replay finds the row further on and changes nothing.
-- name: advanceLog :exec
-- null: position
update holdfast.sandbox_attempts
set log_cursor = :position, log_seq = log_seq + :chunks, log_bytes = log_bytes + :bytes,
    log_truncated_at = case when :truncated then coalesce(log_truncated_at, holdfast.ledger_now()) else log_truncated_at end
where tenant_id = holdfast.current_tenant() and sandbox_id = :sandbox and log_seq = :after_seq
  and log_complete_at is null and log_lost_reason is null;

-- name: completeLog :exec
update holdfast.sandbox_attempts set log_complete_at = holdfast.ledger_now()
where tenant_id = holdfast.current_tenant() and sandbox_id = :sandbox and log_complete_at is null and log_lost_reason is null;

-- name: loseLog :exec
update holdfast.sandbox_attempts set log_lost_reason = :reason
where tenant_id = holdfast.current_tenant() and sandbox_id = :sandbox and log_complete_at is null and log_lost_reason is null;

-- name: readLogProgress :one
select log_cursor, log_seq, log_bytes, log_truncated_at is not null as "truncated!",
  (log_complete_at is not null or log_lost_reason is not null) as "settled!"
from holdfast.sandbox_attempts
where tenant_id = holdfast.current_tenant() and sandbox_id = :sandbox;

-- What the sandboxes of one owner have stored together, and whether the mark that more is cut off is among it.
-- name: readLogRoom :one
select sum(o.log_bytes)::bigint as "bytes!", bool_or(o.log_truncated_at is not null) as "truncated!"
from holdfast.sandbox_attempts s
join holdfast.sandbox_attempts o on o.tenant_id = s.tenant_id and o.owner_kind = s.owner_kind and o.owner_id = s.owner_id
where s.tenant_id = holdfast.current_tenant() and s.sandbox_id = :sandbox;

-- What a sandbox has written, in order, after a chunk.
-- name: readChunksAfter :many
select seq, stream, at, body from holdfast.log_chunks
where tenant_id = holdfast.current_tenant() and sandbox_id = :sandbox and seq > :after
order by seq limit :limit;
