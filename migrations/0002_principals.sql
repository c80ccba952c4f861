-- 0002 Principals: who may call, and the tokens that prove it.
--
-- A token is shown once and stored as its SHA-256. authenticate() is the one SECURITY DEFINER function of the
-- schema: a request has no tenant before its token is known, so no policy could let a runtime role look it up.

create table holdfast.principals (
  tenant_id text not null references holdfast.tenants,
  principal_id uuid not null,
  name text not null constraint principals_name check (name ~ '^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$'),
  created_at timestamptz not null default holdfast.ledger_now(),
  disabled_at timestamptz,
  primary key (tenant_id, principal_id),
  constraint principals_name_taken unique (tenant_id, name)
);
create trigger principals_keep before update on holdfast.principals
  for each row execute function holdfast.keep_columns('tenant_id', 'principal_id', 'name', 'created_at');

create table holdfast.tokens (
  tenant_id text not null,
  token_id uuid not null,
  principal_id uuid not null,
  token_hash bytea not null constraint tokens_hash check (octet_length(token_hash) = 32),
  scopes text[] not null constraint tokens_scopes check (cardinality(scopes) between 1 and 64),
  created_at timestamptz not null default holdfast.ledger_now(),
  expires_at timestamptz not null,
  revoked_at timestamptz,
  last_used_at timestamptz,
  primary key (tenant_id, token_id),
  foreign key (tenant_id, principal_id) references holdfast.principals,
  constraint tokens_expire_later check (expires_at > created_at)
);
create index tokens_hash on holdfast.tokens using hash (token_hash);
create trigger tokens_keep before update on holdfast.tokens
  for each row execute function holdfast.keep_columns(
    'tenant_id', 'token_id', 'principal_id', 'token_hash', 'scopes', 'created_at', 'expires_at');
create trigger tokens_revoked_once before update on holdfast.tokens
  for each row execute function holdfast.write_once('revoked_at');

alter table holdfast.principals enable row level security;
alter table holdfast.principals force row level security;
alter table holdfast.tokens enable row level security;
alter table holdfast.tokens force row level security;
create policy principals_tenant on holdfast.principals to holdfast_operator, holdfast_gateway
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());
create policy tokens_tenant on holdfast.tokens to holdfast_operator
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());
-- authenticate() runs as the owner, whom forced row-level security would otherwise blind.
create policy principals_authenticate on holdfast.principals for select to holdfast_owner using (true);
create policy tokens_authenticate on holdfast.tokens to holdfast_owner using (true);
create policy tenants_authenticate on holdfast.tenants for select to holdfast_owner using (true);

grant select on holdfast.principals to holdfast_gateway;
grant select, insert, update (disabled_at) on holdfast.principals to holdfast_operator;
grant select, insert, update (revoked_at) on holdfast.tokens to holdfast_operator;

-- Who holds this token: one row while it is live, else none. Last use is kept to the minute, so that a busy
-- token does not write a row for each request.
create function holdfast.authenticate(hash bytea)
  returns table (tenant_id text, principal_id uuid, principal_name text, token_id uuid, scopes text[], expires_at timestamptz)
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  now timestamptz := holdfast.ledger_now();
begin
  return query
    select k.tenant_id, k.principal_id, p.name, k.token_id, k.scopes, k.expires_at
    from holdfast.tokens k
    join holdfast.principals p using (tenant_id, principal_id)
    join holdfast.tenants t using (tenant_id)
    where k.token_hash = hash and k.revoked_at is null and k.expires_at > now
      and p.disabled_at is null and t.disabled_at is null;
  update holdfast.tokens k set last_used_at = now
  where k.token_hash = hash and k.revoked_at is null
    and (k.last_used_at is null or k.last_used_at < now - interval '1 minute');
end
$$;
grant execute on function holdfast.authenticate(bytea) to holdfast_gateway;
