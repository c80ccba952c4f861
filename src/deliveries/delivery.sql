-- Deliveries as clients see them, and where they go. The model stands in migrations/0004_commands_and_changes.sql.

-- Where a session's agent wants what is told to a destination: by the newest of its templates that names it, so that
-- a corrected URL counts for what is waiting already.
-- name: readTarget :maybe
select d.entry ->> 'url' as "url!", coalesce(d.entry -> 'secrets', '[]') as "secrets!"
from holdfast.cloud_sessions s
join holdfast.agent_templates t on t.tenant_id = s.tenant_id and t.agent_id = s.agent_id
cross join lateral jsonb_array_elements(t.template -> 'destinations') as d(entry)
where s.tenant_id = holdfast.current_tenant() and s.session_id = :session and d.entry ->> 'name' = :destination
order by t.version desc limit 1;

-- Without what is delivered. next_try_at: it waits for that; null with state pending: it is being delivered, or waits
-- for an earlier one of its line.
-- name: listDeliveries :many
-- null: state, session, destination, after_created_at, after_publication
select o.publication_id, o.source_kind, o.source_id, o.session_id, o.ordinal, o.destination, o.created_at,
  o.resource_version, o.state, o.tries, o.tried_at, o.last_error, o.last_status, o.settled_at,
  l.due_at as "next_try_at?"
from holdfast.publication_outbox o
left join holdfast.leases l on l.tenant_id = o.tenant_id and l.kind = 'publication' and l.resource_id = o.publication_id
  and l.holder is null
where o.tenant_id = holdfast.current_tenant()
  and (:state::text is null or o.state = :state)
  and (:session::uuid is null or o.session_id = :session)
  and (:destination::text is null or o.destination = :destination)
  and (:after_created_at::timestamptz is null
    or (o.created_at, o.publication_id) < (:after_created_at, :after_publication::uuid))
order by o.created_at desc, o.publication_id desc
limit :limit;

-- name: getDelivery :maybe
select o.publication_id, o.source_kind, o.source_id, o.session_id, o.ordinal, o.destination, o.created_at,
  o.resource_version, o.state, o.tries, o.tried_at, o.last_error, o.last_status, o.settled_at,
  l.due_at as "next_try_at?", o.payload
from holdfast.publication_outbox o
left join holdfast.leases l on l.tenant_id = o.tenant_id and l.kind = 'publication' and l.resource_id = o.publication_id
  and l.holder is null
where o.tenant_id = holdfast.current_tenant() and o.publication_id = :publication;
