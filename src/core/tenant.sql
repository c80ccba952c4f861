-- Tenants, their principals, and the tokens of these. Only operators write them.

-- name: insertTenant :exec
insert into holdfast.tenants (tenant_id) values (:tenant);

-- name: tenantExists :one
select exists (select from holdfast.tenants where tenant_id = :tenant) as "known!";

-- name: insertPrincipal :exec
insert into holdfast.principals (tenant_id, principal_id, name)
values (holdfast.current_tenant(), :principal, :name);

-- name: readPrincipal :maybe
select name, disabled_at from holdfast.principals
where tenant_id = holdfast.current_tenant() and principal_id = :principal;

-- name: readPrincipalByName :maybe
select principal_id, disabled_at from holdfast.principals
where tenant_id = holdfast.current_tenant() and name = :name;

-- name: insertToken :one
insert into holdfast.tokens (tenant_id, token_id, principal_id, token_hash, scopes, created_at, expires_at)
values (holdfast.current_tenant(), :token, :principal, :hash, :scopes, :now, :now::timestamptz + holdfast.microseconds(:lifetime_us))
returning expires_at;

-- From a moment on. Again it changes nothing, unless that moment is earlier.
-- name: revokeToken :maybe
update holdfast.tokens set revoked_at = least(revoked_at, :at)
where tenant_id = holdfast.current_tenant() and token_id = :token
returning revoked_at as "revoked_at!";

-- name: readToken :maybe
select principal_id, scopes, created_at, expires_at, revoked_at from holdfast.tokens
where tenant_id = holdfast.current_tenant() and token_id = :token;

-- name: listTokens :many
select k.token_id, p.name as principal, k.scopes, k.created_at, k.expires_at, k.revoked_at, k.last_used_at
from holdfast.tokens k
join holdfast.principals p on p.tenant_id = k.tenant_id and p.principal_id = k.principal_id
where k.tenant_id = holdfast.current_tenant()
order by k.created_at, k.token_id
limit :limit;

-- All of them, by name, after the last of the page before.
-- name: pageTenants :many
-- null: after
select tenant_id from holdfast.tenants where :after::text is null or tenant_id > :after order by tenant_id limit :limit;
