-- Changes: what happened, in the order of commits. The model stands in migrations/0004_commands_and_changes.sql.

-- Appended in the transaction of the change itself, after the resource's row is locked.
-- name: appendChange :exec
insert into holdfast.resource_changes (tenant_id, kind, resource_id, root_id, resource_version, operation, body)
values (holdfast.current_tenant(), :kind, :resource, :root, :version, :operation, :body);

-- Nothing when another one is stamping.
-- name: stampChanges :one
select holdfast.stamp_changes(:deployment_epoch, :batch) as "stamped?";

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
  and (:labels::jsonb = '{}' or body -> 'labels' @> :labels)
order by position limit :limit;

-- How far the floor can go: the last of the next changes above it, as far as all of them are old enough. Null: not at all.
-- name: readExpiredPosition :one
select coalesce(min(n.position) filter (where n.at >= holdfast.ledger_now() - holdfast.microseconds(:retention_us)) - 1, max(n.position)) as expired
from (
  select r.position, r.at from holdfast.resource_changes r, holdfast.change_counter c
  where r.position > c.floor order by r.position limit :batch
) n;

-- Committed before anything is removed: whoever resumes from below it is told so, and misses nothing unknowingly.
-- name: advanceFloor :exec
update holdfast.change_counter set floor = :floor where floor < :floor and position >= :floor;

-- Row-level security lets this role remove what lies below the floor, of all tenants, and nothing else.
-- name: removeChanges :exec
delete from holdfast.resource_changes
where position in (
  select r.position from holdfast.resource_changes r
  where r.position <= (select c.floor from holdfast.change_counter c)
  order by r.position limit :batch);
