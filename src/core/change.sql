-- Changes: what happened, in the order of commits. The model stands in migrations/0004_commands_and_changes.sql.

-- Appended in the transaction of the change itself, after the resource's row is locked.
-- name: appendChange :exec
insert into holdfast.resource_changes (tenant_id, kind, resource_id, root_id, resource_version, operation, body)
values (holdfast.current_tenant(), :kind, :resource, :root, :version, :operation, :body);

-- Whoever gets this stamps the next positions. Held until the transaction ends.
-- name: lockSequencer :one
select pg_try_advisory_xact_lock(7146290582) as "locked!";

-- name: stampChanges :one
select holdfast.stamp_changes(:batch) as "stamped!";

-- name: readCounter :one
select position, floor from holdfast.change_counter;

-- Which tenants and resources changed after a position: no payload.
-- name: readPositions :many
select position as "position!", tenant_id, kind, root_id from holdfast.resource_changes
where position > :after order by position limit :limit;

-- One tenant's changes after a position and up to another.
-- name: readChanges :many
-- null: root
select position as "position!", kind, resource_id, root_id, resource_version, operation, at, traceparent, body
from holdfast.resource_changes
where tenant_id = holdfast.current_tenant() and position > :after and position <= :upto
  and (cardinality(:kinds::text[]) = 0 or kind = any (:kinds))
  and (:root::uuid is null or root_id = :root)
order by position limit :limit;
