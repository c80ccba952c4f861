-- 0002 Principals: who may call, and the tokens that prove it.
--
-- A token is shown once and stored as its SHA-256. Who is known elsewhere (OpenID Connect) has a principal here
-- and no token. authenticate() and admit_subject() are SECURITY DEFINER functions: a request has no tenant
-- before its credential is known, so no policy could let a runtime role look it up.

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

-- A revocation may be announced for later, so that a successor has time to be rolled out, and brought forward,
-- but never put off or taken back.
create function holdfast.only_earlier() returns trigger
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
begin
  if new.revoked_at is null or new.revoked_at > old.revoked_at then
    raise exception using errcode = 'HF002', table = tg_table_name, column = 'revoked_at',
      message = 'a revocation is never put off or taken back';
  end if;
  return new;
end
$$;
create trigger tokens_revoked_for_good before update of revoked_at on holdfast.tokens
  for each row when (old.revoked_at is not null) execute function holdfast.only_earlier();

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
create policy principals_admit on holdfast.principals for insert to holdfast_owner with check (true);
create policy tokens_authenticate on holdfast.tokens to holdfast_owner using (true);
create policy tenants_authenticate on holdfast.tenants for select to holdfast_owner using (true);

grant select on holdfast.principals to holdfast_gateway;
grant select, insert, update (disabled_at) on holdfast.principals to holdfast_operator;
grant select, insert, update (revoked_at) on holdfast.tokens to holdfast_operator;

-- Who holds this token: one row while it is live, else none. Last use is kept to the minute, so that a busy
-- token does not write a row for each request.
create function holdfast.authenticate(hash bytea, p_deployment bigint)
  returns table (tenant_id text, principal_id uuid, principal_name text, token_id uuid, scopes text[], expires_at timestamptz)
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  now timestamptz := holdfast.ledger_now();
begin
  perform holdfast.assert_deployment(p_deployment);
  return query
    select k.tenant_id, k.principal_id, p.name, k.token_id, k.scopes, least(k.expires_at, k.revoked_at)
    from holdfast.tokens k
    join holdfast.principals p using (tenant_id, principal_id)
    join holdfast.tenants t using (tenant_id)
    where k.token_hash = hash and (k.revoked_at is null or k.revoked_at > now) and k.expires_at > now
      and p.disabled_at is null and t.disabled_at is null;
  update holdfast.tokens k set last_used_at = now
  where k.token_hash = hash and (k.revoked_at is null or k.revoked_at > now) and k.expires_at > now
    and (k.last_used_at is null or k.last_used_at < now - interval '1 minute');
end
$$;
grant execute on function holdfast.authenticate(bytea, bigint) to holdfast_gateway;

-- The principal of somebody whom a trusted issuer vouches for, made at first sight: one row while tenant and
-- principal are enabled, else none. It makes no tenant.
create function holdfast.admit_subject(tenant text, name text, new_principal uuid, p_deployment bigint)
  returns table (tenant_id text, principal_id uuid, principal_name text)
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform holdfast.assert_deployment(p_deployment);
  return query
    select p.tenant_id, p.principal_id, p.name from holdfast.principals p join holdfast.tenants t using (tenant_id)
    where p.tenant_id = tenant and p.name = admit_subject.name and p.disabled_at is null and t.disabled_at is null;
  if found then
    return;
  end if;
  insert into holdfast.principals as p (tenant_id, principal_id, name)
  select t.tenant_id, new_principal, admit_subject.name from holdfast.tenants t
  where t.tenant_id = tenant and t.disabled_at is null
  on conflict on constraint principals_name_taken do nothing;
  -- Also when another request was first: then its row is there, unless it is disabled.
  return query
    select p.tenant_id, p.principal_id, p.name from holdfast.principals p join holdfast.tenants t using (tenant_id)
    where p.tenant_id = tenant and p.name = admit_subject.name and p.disabled_at is null and t.disabled_at is null;
end
$$;
grant execute on function holdfast.admit_subject(text, text, uuid, bigint) to holdfast_gateway;
