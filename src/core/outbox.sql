-- The outbox: what must be told outside. The model stands in migrations/0004_commands_and_changes.sql: the lease of
-- a line's first pending row makes it due.

-- Once by (source, destination): a replay of what wrote it writes nothing more.
-- name: publish :one
select holdfast.publish(:source_kind, :source, :session, :ordinal, :destination, :payload) as "publication?";

-- name: readPublication :maybe
select publication_id, source_kind, source_id, session_id, ordinal, destination, payload, created_at, resource_version,
  state, tries, tried_at, last_error, last_status, settled_at
from holdfast.publication_outbox
where tenant_id = holdfast.current_tenant() and publication_id = :publication;

-- A try is counted when it begins, so that one whose process dies of it is counted too.
-- name: beginTry :exec
update holdfast.publication_outbox set tries = tries + 1, tried_at = holdfast.ledger_now()
where tenant_id = holdfast.current_tenant() and publication_id = :publication and state = 'pending';

-- name: settlePublication :one
-- null: last_error, last_status
update holdfast.publication_outbox
set state = :state, last_error = :last_error, last_status = :last_status, resource_version = resource_version + 1,
    settled_at = case when :state = 'pending' then null else holdfast.ledger_now() end
where tenant_id = holdfast.current_tenant() and publication_id = :publication and state = 'pending'
returning resource_version;

-- The next of the line becomes due, when none of it is.
-- name: advanceLine :one
select holdfast.advance_line(:session, :destination)::text as "nothing!";

-- name: lockLine :one
select holdfast.lock_line(:session, :destination)::text as "nothing!";

-- A dead one gets its tries back.
-- name: revivePublication :maybe
update holdfast.publication_outbox
set state = 'pending', tries = 0, settled_at = null, resource_version = resource_version + 1
where tenant_id = holdfast.current_tenant() and publication_id = :publication and state = 'dead'
returning resource_version;

-- One of the line that waits for its next try makes room; one that is being delivered keeps its lease.
-- name: freeLine :exec
delete from holdfast.leases l
using (
  select f.resource_id from holdfast.leases f
  join holdfast.publication_outbox o on o.tenant_id = f.tenant_id and o.publication_id = f.resource_id
  where f.tenant_id = holdfast.current_tenant() and f.kind = 'publication' and o.session_id = :session
    and o.destination = :destination and o.state = 'pending' and (f.holder is null or f.wake_at <= holdfast.ledger_now())
  for no key update of f skip locked
) free
where l.tenant_id = holdfast.current_tenant() and l.kind = 'publication' and l.resource_id = free.resource_id;

-- Row-level security shows this role what was settled a week ago, over all tenants, and nothing else.
-- name: removeSettledPublications :exec
delete from holdfast.publication_outbox
where (tenant_id, publication_id) in (
  select tenant_id, publication_id from holdfast.publication_outbox
  where state <> 'pending' and settled_at < holdfast.ledger_now() - holdfast.microseconds(:retention_us)
  limit :batch);
