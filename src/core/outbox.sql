-- The outbox: what must be told outside. A lease of kind 'publication' with the same id makes a row due.

-- Once by (source, destination): a replay of what wrote it writes nothing more.
-- name: insertPublication :maybe
insert into holdfast.publication_outbox (tenant_id, publication_id, source_kind, source_id, destination, payload)
values (holdfast.current_tenant(), :publication, :source_kind, :source, :destination, :payload)
on conflict on constraint publication_outbox_once do nothing
returning publication_id;

-- name: readPublication :maybe
select publication_id, source_kind, source_id, destination, payload, created_at, state, tries, last_error
from holdfast.publication_outbox
where tenant_id = holdfast.current_tenant() and publication_id = :publication;

-- name: settlePublication :exec
-- null: last_error
update holdfast.publication_outbox
set state = :state, tries = tries + 1, last_error = :last_error,
    settled_at = case when :state = 'pending' then null else holdfast.ledger_now() end
where tenant_id = holdfast.current_tenant() and publication_id = :publication and state = 'pending';

-- An operator gives a dead one its tries back.
-- name: redeliverPublication :exec
update holdfast.publication_outbox set state = 'pending', tries = 0, settled_at = null
where tenant_id = holdfast.current_tenant() and publication_id = :publication and state = 'dead';
