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
--   HF017 a drain: nothing new of this kind is admitted            HF018 live processes would be left behind
--   HF019 the process does not understand the store's floor

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

-- Floors and epoch only rise, and only while no live process would be left behind: the refusal names them. What may
-- not be stopped any other way is cut off by the epoch alone, when the one who rotates it says so. The lock is the
-- other half of the one in register_incarnation().
create function holdfast.keep_floors() returns trigger
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
declare
  alive text;
begin
  if new.reader_floor < old.reader_floor or new.writer_floor < old.writer_floor
     or new.deployment_epoch < old.deployment_epoch then
    raise exception using errcode = 'HF002', table = 'store', message = 'floors and the deployment epoch never go down';
  end if;
  if new.reader_floor > old.reader_floor or new.writer_floor > old.writer_floor then
    perform pg_advisory_xact_lock(7146290583);
    alive := holdfast.processes_alive(greatest(new.reader_floor, new.writer_floor));
    if alive is not null then
      raise exception using errcode = 'HF018', table = 'store', message = 'older processes are alive: ' || alive,
        hint = 'Stop every process that does not understand the new floor, then try again.';
    end if;
  end if;
  if new.deployment_epoch > old.deployment_epoch then
    perform pg_advisory_xact_lock(7146290583);
    alive := holdfast.processes_alive();
    if alive is not null and current_setting('holdfast.cut_off', true) is distinct from 'on' then
      raise exception using errcode = 'HF018', table = 'store',
        message = format('processes of deployment epoch %s are alive: %s', old.deployment_epoch, alive),
        hint = 'Stop them first, or cut them off.';
    end if;
    insert into holdfast.operator_actions (action, subject, reason, processes)
    values ('rotate_deployment', format('%s to %s', old.deployment_epoch, new.deployment_epoch),
      coalesce(nullif(current_setting('holdfast.reason', true), ''), 'none given'), alive);
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

grant select on holdfast.store, holdfast.schema_migrations, holdfast.schema_online_steps to
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
  -- Of a controller: what it can run sandboxes with. What waits for another runtime waits for another controller.
  runtimes text[] not null default '{}' constraint incarnations_runtimes check (cardinality(runtimes) <= 16),
  started_at timestamptz not null default holdfast.ledger_now(),
  seen_at timestamptz not null default holdfast.ledger_now(),
  ended_at timestamptz
);
grant select, insert, update (seen_at, ended_at, runtimes), delete on holdfast.incarnations to holdfast_dispatcher;
-- Nothing here is a tenant's, and every process may ask who else is there (M5).
grant select on holdfast.incarnations to
  holdfast_gateway, holdfast_controller, holdfast_worker, holdfast_producer, holdfast_operator, holdfast_retention;

-- The processes that were seen in the last two minutes and have not ended, those below a floor or all, in words.
create function holdfast.processes_alive(p_below integer default null) returns text
  language sql volatile security invoker
  return (
    select string_agg(format('%s %s (schema %s to %s)', a.process, a.release, a.schema_minimum, a.schema_maximum), ', ' order by a.started_at)
    from (
      select i.process, i.release, i.schema_minimum, i.schema_maximum, i.started_at from holdfast.incarnations i
      where i.ended_at is null and i.seen_at > holdfast.ledger_now() - interval '2 minutes'
        and (p_below is null or i.schema_maximum < p_below)
      order by i.started_at limit 20) a);

-- A process that a floor or a rotation has left behind since it looked is refused here: either it registers before
-- the floor rises, and is seen then, or after, and sees the floor.
create function holdfast.register_incarnation() returns trigger
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
declare
  store holdfast.store;
begin
  perform pg_advisory_xact_lock_shared(7146290583);
  select * into strict store from holdfast.store;
  if new.schema_maximum < greatest(store.reader_floor, store.writer_floor) then
    raise exception using errcode = 'HF019', table = 'incarnations', message =
      format('the floors are %s and %s, this process understands up to %s', store.reader_floor, store.writer_floor, new.schema_maximum);
  elsif new.deployment_epoch <> store.deployment_epoch then
    raise exception using errcode = 'HF004', table = 'incarnations', message =
      format('this process knows deployment epoch %s, the store is at %s', new.deployment_epoch, store.deployment_epoch);
  end if;
  return new;
end
$$;
create trigger incarnations_fit before insert on holdfast.incarnations
  for each row execute function holdfast.register_incarnation();

-- What operators did to the installation, who and why. Rows are added and never changed.
create table holdfast.operator_actions (
  action_id bigint generated always as identity primary key,
  action text not null constraint operator_actions_action check (action in ('rotate_deployment', 'drain', 'resume')),
  subject text not null constraint operator_actions_subject check (length(subject) between 1 and 100),
  reason text not null constraint operator_actions_reason check (length(reason) between 1 and 500),
  -- The live processes that it cut off, or null.
  processes text,
  acted_at timestamptz not null default holdfast.ledger_now(),
  acted_by text not null default session_user
);
grant select, insert (action, subject, reason, processes) on holdfast.operator_actions to holdfast_operator;

-- Kinds of which nothing new is admitted, whatever the tenant: what was admitted goes on to its end. The reason is
-- told to whoever is refused. Admission reads the row as it reads that its tenant is enabled; a drain commits first
-- and then waits until every transaction that began before has ended.
create table holdfast.drains (
  kind text primary key constraint drains_kind check (kind in ('jobs', 'sessions', 'activations', 'work')),
  reason text not null constraint drains_reason check (length(reason) between 1 and 500),
  started_at timestamptz not null default holdfast.ledger_now(),
  started_by text not null default session_user
);
create function holdfast.record_drain() returns trigger
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
begin
  if tg_op = 'INSERT' then
    insert into holdfast.operator_actions (action, subject, reason) values ('drain', new.kind, new.reason);
    return new;
  end if;
  insert into holdfast.operator_actions (action, subject, reason)
  values ('resume', old.kind, coalesce(nullif(current_setting('holdfast.reason', true), ''), 'none given'));
  return old;
end
$$;
create trigger drains_are_recorded after insert or delete on holdfast.drains
  for each row execute function holdfast.record_drain();
grant select on holdfast.drains to
  holdfast_gateway, holdfast_controller, holdfast_worker, holdfast_producer,
  holdfast_dispatcher, holdfast_operator, holdfast_retention;
grant insert (kind, reason), delete on holdfast.drains to holdfast_operator;

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

-- For what writes without begin_transition(): refuses a process that the deployment has left behind.
create function holdfast.assert_deployment(p_deployment bigint) returns void
  language plpgsql stable security invoker set search_path = pg_catalog, pg_temp as $$
declare
  current_epoch bigint;
begin
  select s.deployment_epoch into strict current_epoch from holdfast.store s;
  if p_deployment is distinct from current_epoch then
    raise exception using errcode = 'HF004',
      message = format('this process knows deployment epoch %s, the store is at %s', p_deployment, current_epoch);
  end if;
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

-- Why nothing new of a kind is admitted; null when it is.
create function holdfast.draining(p_kind text) returns text
  language sql stable security invoker
  return (select d.reason from holdfast.drains d where d.kind = p_kind);

-- Everything new that a kind is drained of asks this one.
create function holdfast.assert_admits(p_kind text) returns void
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
declare
  why constant text := holdfast.draining(p_kind);
begin
  perform holdfast.assert_tenant_admits();
  if why is not null then
    raise exception using errcode = 'HF017', message = format('no new %s are admitted: %s', p_kind, why);
  end if;
end
$$;

grant execute on function holdfast.ledger_now(), holdfast.current_tenant(), holdfast.microseconds(bigint),
  holdfast.current_traceparent(), holdfast.begin_transition(text, bigint, text), holdfast.assert_deployment(bigint),
  holdfast.assert_tenant_admits(), holdfast.draining(text), holdfast.assert_admits(text), holdfast.processes_alive(integer) to
  holdfast_gateway, holdfast_controller, holdfast_worker, holdfast_producer,
  holdfast_dispatcher, holdfast_operator, holdfast_retention;
