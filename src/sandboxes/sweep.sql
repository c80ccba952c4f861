-- The sweep of orphans: outside objects that no live attempt owns (E21).

-- Who owns an outside object, by its name.
-- name: readSandboxByName :maybe
select s.sandbox_id, s.uid, s.state
from holdfast.sandbox_attempts s
where s.tenant_id = holdfast.current_tenant() and s.name = :name;

-- name: recordSwept :exec
insert into holdfast.swept_sandboxes (tenant_id, name, uid, runtime, epoch, reason)
values (holdfast.current_tenant(), :name, :uid, :runtime, :epoch, :reason)
on conflict (tenant_id, name, uid) do nothing;

-- The last epoch that this store gave.
-- name: readLastEpoch :one
select case when is_called then last_value else last_value - 1 end as "epoch!" from holdfast.lease_epochs;

-- An epoch that is higher than that of whoever made the object.
-- name: drawEpoch :one
select nextval('holdfast.lease_epochs') as "epoch!";
