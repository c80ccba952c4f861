-- 0001 Foundation: the store itself, the clock, tenants, and the processes that use the store.
--
-- Adds the schema's ground rules. Every table of a tenant's rows has a key that starts with tenant_id and
-- forced row-level security over current_tenant(); a transaction that names no tenant sees no row. Roles come
-- from roles.sql. PUBLIC has nothing.
--
-- SQLSTATEs of our own, each mapped to one error code in src/core/postgres/sqlstate.ts:
--   HF001 fence: the lease is missing, expired or superseded     HF005 the tenant is disabled or unknown
--   HF002 an immutable column was changed                        HF006 the sandbox may not report any more
--   HF003 a transition that the state machine does not have      HF007 commit pins are missing
--   HF004 another deployment epoch                                HF008 the attempt's end is not proven
--   HF009 the session's head is another one                       HF010 there is nothing to commit

create schema if not exists holdfast;
revoke all on schema holdfast from public;
alter default privileges in schema holdfast revoke all on tables from public;
alter default privileges revoke execute on functions from public;
grant usage on schema holdfast to
  holdfast_gateway, holdfast_controller, holdfast_worker, holdfast_producer,
  holdfast_dispatcher, holdfast_operator, holdfast_retention;

-- The only clock. Volatile, so that each call looks again; a statement that needs one instant takes one
-- sample and passes it on.
create function holdfast.ledger_now() returns timestamptz
  language sql volatile security invoker parallel safe
  return pg_catalog.clock_timestamp();

create function holdfast.current_tenant() returns text
  language sql stable security invoker parallel safe
  return nullif(pg_catalog.current_setting('holdfast.tenant', true), '');

-- Microseconds, as the wire and TypeScript carry durations, to an interval without loss.
create function holdfast.microseconds(value bigint) returns interval
  language sql immutable strict parallel safe
  return value * interval '1 microsecond';

-- Trigger: the columns named in its arguments never change once written.
create function holdfast.keep_columns() returns trigger
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
declare
  before jsonb := to_jsonb(old);
  after jsonb := to_jsonb(new);
  name text;
begin
  foreach name in array tg_argv loop
    if before -> name is distinct from after -> name then
      raise exception using errcode = 'HF002', table = tg_table_name, column = name,
        message = format('%s.%s never changes', tg_table_name, name);
    end if;
  end loop;
  return new;
end
$$;

-- Trigger: the columns named in its arguments are written once: from null to a value, and never again.
create function holdfast.write_once() returns trigger
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
declare
  before jsonb := to_jsonb(old);
  after jsonb := to_jsonb(new);
  name text;
begin
  foreach name in array tg_argv loop
    if before -> name <> 'null'::jsonb and before -> name is distinct from after -> name then
      raise exception using errcode = 'HF002', table = tg_table_name, column = name,
        message = format('%s.%s was written already', tg_table_name, name);
    end if;
  end loop;
  return new;
end
$$;

-- Trigger: `state` moves only along the edges named in its arguments, such as 'planned>held'.
create function holdfast.keep_transitions() returns trigger
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
begin
  if old.state <> new.state and not (old.state || '>' || new.state = any (tg_argv)) then
    raise exception using errcode = 'HF003', table = tg_table_name, column = 'state',
      message = format('%s: no transition from %s to %s', tg_table_name, old.state, new.state);
  end if;
  return new;
end
$$;

-- One row: which store this is. installation_id also stands in the configuration of every process, and a
-- process refuses a store of another installation, so a clone never sweeps production. incarnation_id changes
-- when an operator declares a restored copy to be the store from now on.
create table holdfast.store (
  singleton boolean primary key default true constraint store_is_one_row check (singleton),
  installation_id text not null constraint store_installation_id check (installation_id ~ '^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$'),
  incarnation_id uuid not null default gen_random_uuid(),
  reader_floor integer not null,
  writer_floor integer not null,
  deployment_epoch bigint not null default 1,
  created_at timestamptz not null default holdfast.ledger_now()
);

create function holdfast.keep_floors() returns trigger
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
begin
  if new.reader_floor < old.reader_floor or new.writer_floor < old.writer_floor
     or new.deployment_epoch < old.deployment_epoch then
    raise exception using errcode = 'HF002', table = 'store', message = 'floors and the deployment epoch never go down';
  end if;
  return new;
end
$$;
create trigger store_keeps_floors before update on holdfast.store
  for each row execute function holdfast.keep_floors();
create trigger store_keeps_identity before update on holdfast.store
  for each row execute function holdfast.keep_columns('installation_id', 'created_at');

insert into holdfast.store (installation_id, reader_floor, writer_floor)
values (coalesce(nullif(current_setting('holdfast.installation', true), ''), 'i' || replace(gen_random_uuid()::text, '-', '')), 1, 1);

grant select on holdfast.store, holdfast.schema_migrations to
  holdfast_gateway, holdfast_controller, holdfast_worker, holdfast_producer,
  holdfast_dispatcher, holdfast_operator, holdfast_retention;
grant update (incarnation_id, deployment_epoch) on holdfast.store to holdfast_operator;

create table holdfast.tenants (
  tenant_id text primary key constraint tenants_id check (tenant_id ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
  created_at timestamptz not null default holdfast.ledger_now(),
  disabled_at timestamptz
);
create trigger tenants_keep before update on holdfast.tenants
  for each row execute function holdfast.keep_columns('tenant_id', 'created_at');
create trigger tenants_disabled_once before update on holdfast.tenants
  for each row execute function holdfast.write_once('disabled_at');

alter table holdfast.tenants enable row level security;
alter table holdfast.tenants force row level security;
create policy tenants_own on holdfast.tenants for select
  to holdfast_gateway, holdfast_controller, holdfast_worker, holdfast_producer, holdfast_retention
  using (tenant_id = holdfast.current_tenant());
-- Tenants are made and listed by operators, before any tenant is named.
create policy tenants_operator on holdfast.tenants to holdfast_operator using (true) with check (true);
grant select on holdfast.tenants to
  holdfast_gateway, holdfast_controller, holdfast_worker, holdfast_producer, holdfast_retention;
grant select, insert, update (disabled_at) on holdfast.tenants to holdfast_operator;

-- One run of one process. Raising a floor or rotating the deployment epoch looks here for those still alive.
create table holdfast.incarnations (
  incarnation_id uuid primary key,
  process text not null constraint incarnations_process check (length(process) between 1 and 63),
  release text not null constraint incarnations_release check (length(release) between 1 and 63),
  schema_minimum integer not null,
  schema_maximum integer not null,
  deployment_epoch bigint not null,
  started_at timestamptz not null default holdfast.ledger_now(),
  seen_at timestamptz not null default holdfast.ledger_now(),
  ended_at timestamptz
);
grant select, insert, update (seen_at, ended_at), delete on holdfast.incarnations to holdfast_dispatcher;
grant select on holdfast.incarnations to holdfast_operator;

-- The W3C trace context of the request that a transaction serves, or null.
create function holdfast.current_traceparent() returns text
  language sql stable security invoker
  return nullif(current_setting('holdfast.traceparent', true), '');

-- Every transition opens with this: it names the tenant for row-level security and the trace that it belongs
-- to, for this transaction alone, and refuses a process that the deployment has left behind. Gives the
-- database's time.
create function holdfast.begin_transition(tenant text, deployment_epoch bigint, traceparent text default null)
  returns timestamptz
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
declare
  current_epoch bigint;
begin
  perform set_config('holdfast.tenant', coalesce(tenant, ''), true);
  if traceparent is not null then
    perform set_config('holdfast.traceparent', traceparent, true);
  end if;
  select s.deployment_epoch into strict current_epoch from holdfast.store s;
  if deployment_epoch is distinct from current_epoch then
    raise exception using errcode = 'HF004',
      message = format('this process knows deployment epoch %s, the store is at %s', deployment_epoch, current_epoch);
  end if;
  return holdfast.ledger_now();
end
$$;

-- Admission of anything new reads this fact; disabling a tenant commits it first and sweeps afterwards.
create function holdfast.assert_tenant_admits() returns void
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
begin
  if not exists (select from holdfast.tenants t where t.tenant_id = holdfast.current_tenant() and t.disabled_at is null) then
    raise exception using errcode = 'HF005', message = 'the tenant is disabled or unknown';
  end if;
end
$$;

grant execute on function holdfast.ledger_now(), holdfast.current_tenant(), holdfast.microseconds(bigint),
  holdfast.current_traceparent(), holdfast.begin_transition(text, bigint, text), holdfast.assert_tenant_admits() to
  holdfast_gateway, holdfast_controller, holdfast_worker, holdfast_producer,
  holdfast_dispatcher, holdfast_operator, holdfast_retention;
