-- 0011 Work: deferred effects of a program's own code, accepted once and run under a permit.
--
--   pending -> leased -> permitted -> (finished)
--      ^         |           |------> retry_wait -> leased
--      |---------|           |------> suspended | reconciling
--
-- What was accepted never changes (work_items). What a live item is at, is in its lease row, of the partition
-- leases_work, and nowhere else; a finished one has one row of history and no lease row. So a turn of the hot path
-- touches two rows, and both tables of what is finished are only ever added to.
--
-- A lane is where a lease row waits: the number of the work's version and its queue, such as `17.mail`. A worker looks
-- only into lanes of versions that it has, so rows of versions that nobody runs cost nobody anything.
--
-- Before user code runs, its permit is committed: the row's state, its number of attempts, under the lease's epoch. A
-- lease that expires with an open permit leaves a row of work_attempts whose outcome is unknown, and what follows is
-- by the declared effect safety. An unknown outcome is settled by a proof, which is a row, too (work_proofs).
--
-- SQLSTATEs of Work, mapped in src/core/postgres/sqlstate.ts like the others:
--   HF011 the version is not registered                          HF014 an identity belongs to another request
--   HF012 the version is retired                                 HF015 the item's state does not allow it
--   HF013 the deadline has passed already                        HF016 no attempt is admitted any more

-- A turn of a worker takes items of several tenants. Its transaction names them, as another names one. Policies look
-- it up with array_position, which no index answers: with `= any` a plan walked through all rows of a turn's tenants.
create function holdfast.current_tenants() returns text[]
  language sql stable security invoker parallel safe
  return array_remove(
    string_to_array(nullif(pg_catalog.current_setting('holdfast.tenants', true), ''), ',') || holdfast.current_tenant(), null);

-- The clock of Work. Volatile: a cutoff is looked at again after the row's lock.
create function holdfast.work_execution_now() returns timestamptz
  language sql volatile security invoker parallel safe
  return pg_catalog.clock_timestamp();

-- What a program registered: the installation's, not a tenant's, because one fleet runs it for all of them. Immutable:
-- other content under the same name and version is refused. Retired: nothing new is accepted, what is there drains.
create table holdfast.work_versions (
  version_number integer generated always as identity primary key,
  name text not null constraint work_versions_name check (name ~ '^[a-z0-9]([a-z0-9._-]{0,98}[a-z0-9])?$'),
  version text not null constraint work_versions_version check (version ~ '^[A-Za-z0-9]([A-Za-z0-9._+-]{0,62})$'),
  digest bytea not null constraint work_versions_digest check (octet_length(digest) = 32),
  queue text not null constraint work_versions_queue check (queue ~ '^[a-z0-9]([a-z0-9_-]{0,38}[a-z0-9])?$'),
  safety text not null constraint work_versions_safety
    check (safety in ('idempotent', 'provider_keyed', 'reconcile_before_retry', 'manual_resolution')),
  attempts_max smallint not null constraint work_versions_attempts check (attempts_max between 1 and 256),
  retry_initial_microseconds bigint not null constraint work_versions_initial check (retry_initial_microseconds between 0 and 3155760000000000),
  retry_longest_microseconds bigint not null constraint work_versions_longest check (retry_longest_microseconds between retry_initial_microseconds and 3155760000000000),
  elapsed_max_microseconds bigint not null constraint work_versions_elapsed check (elapsed_max_microseconds between 1 and 3155760000000000),
  lease_max_microseconds bigint not null constraint work_versions_lease check (lease_max_microseconds between 1000000 and 3155760000000000),
  -- Of the circuit breaker: how many failures in a row open it, and after what time it lets one through.
  breaker_failures smallint constraint work_versions_breaker_failures check (breaker_failures between 1 and 1000),
  breaker_probe_microseconds bigint constraint work_versions_breaker_probe check (breaker_probe_microseconds between 1000 and 3155760000000000),
  registered_at timestamptz not null default holdfast.work_execution_now(),
  retired_at timestamptz,
  constraint work_versions_name_taken unique (name, version),
  constraint work_versions_breaker check ((breaker_failures is null) = (breaker_probe_microseconds is null))
);
create trigger work_versions_keep before update on holdfast.work_versions
  for each row execute function holdfast.keep_columns(
    'version_number', 'name', 'version', 'digest', 'queue', 'safety', 'attempts_max', 'retry_initial_microseconds',
    'retry_longest_microseconds', 'elapsed_max_microseconds', 'lease_max_microseconds', 'breaker_failures',
    'breaker_probe_microseconds', 'registered_at');
create trigger work_versions_retired_once before update of retired_at on holdfast.work_versions
  for each row execute function holdfast.write_once('retired_at');
grant select on holdfast.work_versions to
  holdfast_gateway, holdfast_worker, holdfast_producer, holdfast_operator, holdfast_retention;
grant insert on holdfast.work_versions to holdfast_worker;
grant update (retired_at) on holdfast.work_versions to holdfast_operator;

-- Which live processes run a version. One that has rows and no worker is shown, not silently left.
create table holdfast.work_runners (
  incarnation_id uuid not null,
  version_number integer not null references holdfast.work_versions,
  registered_at timestamptz not null default holdfast.work_execution_now(),
  primary key (incarnation_id, version_number),
  foreign key (incarnation_id) references holdfast.incarnations on delete cascade
);
grant select, insert, delete on holdfast.work_runners to holdfast_dispatcher;
grant select on holdfast.work_runners to holdfast_operator, holdfast_gateway;

-- The acceptance snapshot. work_id is the id of the command that brought it, so both are unique in a tenant by one key.
-- No foreign key: this is the row that every submit writes.
create table holdfast.work_items (
  tenant_id text not null,
  work_id uuid not null,
  version_number integer not null,
  idempotency_key text constraint work_items_key check (idempotency_key ~ '^[\x21-\x7e]{1,255}$'),
  fingerprint_schema smallint not null constraint work_items_fingerprint_schema check (fingerprint_schema in (1, 2)),
  fingerprint bytea not null constraint work_items_fingerprint check (octet_length(fingerprint) = 32),
  input jsonb not null constraint work_items_input check (pg_column_size(input) <= 262144),
  provider_key text constraint work_items_provider_key check (length(provider_key) between 1 and 255),
  circuit_key text constraint work_items_circuit_key check (length(circuit_key) between 1 and 128),
  queue text not null constraint work_items_queue check (queue ~ '^[a-z0-9]([a-z0-9_-]{0,38}[a-z0-9])?$'),
  priority smallint not null constraint work_items_priority check (priority between 0 and 3),
  accepted_at timestamptz not null,
  due_at timestamptz not null,
  attempts_max smallint not null constraint work_items_attempts check (attempts_max between 1 and 256),
  retry_initial_microseconds bigint not null,
  retry_longest_microseconds bigint not null,
  elapsed_max_microseconds bigint not null,
  lease_max_microseconds bigint not null,
  traceparent text constraint work_items_traceparent check (length(traceparent) = 55),
  primary key (tenant_id, work_id),
  constraint work_items_due check (due_at >= accepted_at)
);
create unique index work_items_key_taken on holdfast.work_items (tenant_id, idempotency_key) where idempotency_key is not null;
create trigger work_items_keep before update on holdfast.work_items
  for each row execute function holdfast.keep_columns(
    'tenant_id', 'work_id', 'version_number', 'idempotency_key', 'fingerprint_schema', 'fingerprint', 'input',
    'provider_key', 'circuit_key', 'queue', 'priority', 'accepted_at', 'due_at', 'attempts_max',
    'retry_initial_microseconds', 'retry_longest_microseconds', 'elapsed_max_microseconds', 'lease_max_microseconds',
    'traceparent');

-- What a live item is at. Null in every other kind of lease.
alter table holdfast.leases
  add column work_state text,
  -- Permits so far, and until when the present one may be renewed.
  add column attempt smallint,
  add column renew_until timestamptz;
-- Room for the two versions of a row that a claim and a permit make: they stay on its page, and no index is written.
alter table holdfast.leases_work set (fillfactor = 28);
alter table holdfast.leases_work
  add constraint leases_work_state check (
    work_state in ('pending', 'leased', 'permitted', 'retry_wait', 'cancel_pending', 'reconciling', 'suspended')),
  add constraint leases_work_attempt check ((work_state is null) = (attempt is null) and attempt between 0 and 256),
  add constraint leases_work_permit check (work_state not in ('permitted', 'cancel_pending') or (holder is not null and attempt >= 1)),
  add constraint leases_work_claim check (work_state <> 'leased' or holder is not null),
  add constraint leases_work_rests check (work_state not in ('pending', 'retry_wait', 'suspended') or holder is null);

create function holdfast.refuse_transition() returns trigger
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
begin
  raise exception using errcode = 'HF003', table = tg_table_name, column = 'work_state',
    message = format('%s: no transition from %s to %s', tg_table_name, old.work_state, new.work_state);
end
$$;
-- The condition is looked at without calling a function: twice an item, twenty thousand times a second.
create trigger leases_work_transitions before update of work_state on holdfast.leases_work
  for each row when (old.work_state <> new.work_state and old.work_state || '>' || new.work_state <> all (array[
    'pending>leased', 'pending>permitted', 'pending>suspended',
    'retry_wait>leased', 'retry_wait>permitted', 'retry_wait>suspended',
    'leased>permitted', 'leased>pending', 'leased>retry_wait', 'leased>suspended',
    'permitted>pending', 'permitted>retry_wait', 'permitted>cancel_pending', 'permitted>reconciling', 'permitted>suspended',
    'cancel_pending>reconciling', 'cancel_pending>suspended',
    'reconciling>retry_wait', 'reconciling>suspended',
    'suspended>pending', 'suspended>retry_wait']))
  execute function holdfast.refuse_transition();

-- The hot path names the partition itself, so it has rights and policies of its own.
create policy leases_work_tenant on holdfast.leases_work
  to holdfast_gateway, holdfast_producer, holdfast_operator, holdfast_retention
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());
create policy leases_work_tenants on holdfast.leases_work to holdfast_worker
  using (array_position((select holdfast.current_tenants()), tenant_id) is not null)
  with check (array_position((select holdfast.current_tenants()), tenant_id) is not null);
create policy leases_work_dispatcher on holdfast.leases_work to holdfast_dispatcher using (true) with check (true);
grant select, insert, update, delete on holdfast.leases_work to holdfast_gateway, holdfast_worker, holdfast_operator, holdfast_retention;
grant insert on holdfast.leases_work to holdfast_producer;
grant select, update (holder, epoch, wake_at, work_state) on holdfast.leases_work to holdfast_dispatcher;
grant update (work_state) on holdfast.leases to holdfast_dispatcher;
-- Whether one of a turn's tenants has been disabled meanwhile.
create policy tenants_of_a_turn on holdfast.tenants for select to holdfast_worker
  using (array_position((select holdfast.current_tenants()), tenant_id) is not null);
create policy resource_changes_of_a_turn on holdfast.resource_changes to holdfast_worker
  using (array_position((select holdfast.current_tenants()), tenant_id) is not null)
  with check (array_position((select holdfast.current_tenants()), tenant_id) is not null);

-- Attempts that did not finish their item: failed ones, and lost ones whose outcome nobody knows.
create table holdfast.work_attempts (
  tenant_id text not null,
  work_id uuid not null,
  attempt smallint not null constraint work_attempts_number check (attempt between 1 and 256),
  holder uuid not null,
  epoch bigint not null,
  outcome text not null constraint work_attempts_outcome check (outcome in ('failed', 'unknown', 'returned')),
  ended_at timestamptz not null,
  failure_code text constraint work_attempts_failure_code check (length(failure_code) between 1 and 63),
  failure_message text constraint work_attempts_failure_message check (length(failure_message) <= 1000),
  primary key (tenant_id, work_id, attempt, epoch),
  constraint work_attempts_failure check ((outcome = 'failed') = (failure_code is not null))
);

-- One row for each finished item, with the permit under which it finished, if there was one.
create table holdfast.work_history (
  tenant_id text not null,
  work_id uuid not null,
  state text not null constraint work_history_state
    check (state in ('succeeded', 'succeeded_after_cancel_requested', 'failed', 'cancelled_before_effect')),
  attempts smallint not null constraint work_history_attempts check (attempts between 0 and 256),
  finished_at timestamptz not null,
  holder uuid,
  epoch bigint,
  result jsonb constraint work_history_result check (pg_column_size(result) <= 262144),
  failure_code text constraint work_history_failure_code check (length(failure_code) between 1 and 63),
  failure_message text constraint work_history_failure_message check (length(failure_message) <= 1000),
  primary key (tenant_id, work_id),
  constraint work_history_permit check ((holder is null) = (epoch is null)),
  constraint work_history_failure check ((state = 'failed') = (failure_code is not null)),
  constraint work_history_success check (state in ('succeeded', 'succeeded_after_cancel_requested') or result is null)
);

-- What came too late or from somebody who no longer had the lease. It is kept, and is never a success.
create table holdfast.work_observations (
  tenant_id text not null,
  observation_id uuid not null,
  work_id uuid not null,
  attempt smallint not null,
  holder uuid not null,
  epoch bigint not null,
  outcome text not null constraint work_observations_outcome check (outcome in ('succeeded', 'failed')),
  reason text not null constraint work_observations_reason check (reason in ('expired', 'superseded', 'finished', 'deadline_elapsed')),
  result jsonb constraint work_observations_result check (pg_column_size(result) <= 262144),
  failure_code text constraint work_observations_failure_code check (length(failure_code) <= 63),
  failure_message text constraint work_observations_failure_message check (length(failure_message) <= 1000),
  observed_at timestamptz not null default holdfast.work_execution_now(),
  primary key (tenant_id, observation_id),
  constraint work_observations_once unique (tenant_id, work_id, epoch, attempt)
);
create index work_observations_age on holdfast.work_observations using brin (observed_at);

-- What was shown of an unknown outcome, by a reconciler or an operator.
create table holdfast.work_proofs (
  tenant_id text not null,
  work_id uuid not null,
  attempt smallint not null,
  epoch bigint not null,
  verdict text not null constraint work_proofs_verdict check (verdict in ('applied', 'not_applied')),
  source text not null constraint work_proofs_source check (source in ('reconciler', 'operator')),
  proven_by text not null constraint work_proofs_by check (length(proven_by) between 1 and 255),
  note text constraint work_proofs_note check (length(note) <= 1000),
  proven_at timestamptz not null,
  primary key (tenant_id, work_id, attempt, epoch)
);

-- Each time that an item was taken out of its line: why, and who put it back.
create table holdfast.work_suspensions (
  tenant_id text not null,
  work_id uuid not null,
  suspended_at timestamptz not null,
  reason text not null constraint work_suspensions_reason
    check (reason in ('outcome_unknown', 'not_applied', 'tenant_disabled', 'operator')),
  suspended_by text constraint work_suspensions_by check (length(suspended_by) between 1 and 255),
  ended_at timestamptz,
  ended_by text constraint work_suspensions_ended_by check (length(ended_by) between 1 and 255),
  ending text constraint work_suspensions_ending check (ending in ('proven', 'released', 'requeued', 'cancelled')),
  primary key (tenant_id, work_id, suspended_at),
  constraint work_suspensions_end check ((ended_at is null) = (ending is null))
);
create unique index work_suspensions_open on holdfast.work_suspensions (tenant_id, work_id) where ended_at is null;
create trigger work_suspensions_keep before update on holdfast.work_suspensions
  for each row execute function holdfast.keep_columns('tenant_id', 'work_id', 'suspended_at', 'reason', 'suspended_by');
create trigger work_suspensions_end_once before update on holdfast.work_suspensions
  for each row execute function holdfast.write_once('ended_at', 'ended_by', 'ending');

create table holdfast.work_cancels (
  tenant_id text not null,
  work_id uuid not null,
  requested_at timestamptz not null,
  requested_by text not null constraint work_cancels_by check (length(requested_by) between 1 and 255),
  reason text not null constraint work_cancels_reason check (length(reason) <= 1000),
  primary key (tenant_id, work_id)
);

-- The circuit breakers, one a key. Closed ones have failures below the limit and no opened_at.
create table holdfast.work_circuits (
  tenant_id text not null,
  circuit_key text not null constraint work_circuits_key check (length(circuit_key) between 1 and 128),
  failures integer not null default 0 constraint work_circuits_failures check (failures >= 0),
  opened_at timestamptz,
  probe_at timestamptz,
  -- The item that is let through to see whether it works again.
  probing uuid,
  probe_until timestamptz,
  primary key (tenant_id, circuit_key),
  constraint work_circuits_open check ((opened_at is null) = (probe_at is null)),
  constraint work_circuits_probe check ((probing is null) = (probe_until is null) and (probing is null or opened_at is not null))
);

do $$
declare
  name text;
begin
  foreach name in array array['work_items', 'work_attempts', 'work_history', 'work_observations', 'work_proofs', 'work_suspensions',
      'work_cancels', 'work_circuits'] loop
    execute format('alter table holdfast.%I enable row level security', name);
    execute format('alter table holdfast.%I force row level security', name);
    execute format('create policy %I on holdfast.%I to holdfast_gateway, holdfast_producer, holdfast_operator, holdfast_retention
      using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant())', name || '_tenant', name);
    execute format('create policy %I on holdfast.%I to holdfast_worker
      using (array_position((select holdfast.current_tenants()), tenant_id) is not null)
      with check (array_position((select holdfast.current_tenants()), tenant_id) is not null)', name || '_tenants', name);
    execute format('grant select on holdfast.%I to holdfast_gateway, holdfast_worker, holdfast_operator', name);
  end loop;
  -- Only ever added to.
  foreach name in array array['work_attempts', 'work_history', 'work_observations', 'work_proofs', 'work_cancels'] loop
    execute format('grant insert on holdfast.%I to holdfast_worker, holdfast_operator, holdfast_gateway', name);
  end loop;
end
$$;
-- A producer needs to see what an identity resolves to; nothing else of Work is its business.
grant select, insert on holdfast.work_items to holdfast_producer;
grant insert on holdfast.work_items to holdfast_gateway;
grant insert, update (ended_at, ended_by, ending) on holdfast.work_suspensions to holdfast_worker, holdfast_operator, holdfast_gateway;
grant insert, update (failures, opened_at, probe_at, probing, probe_until) on holdfast.work_circuits to holdfast_worker;
grant delete on holdfast.work_observations to holdfast_retention;
grant select (tenant_id, observation_id, observed_at) on holdfast.work_observations to holdfast_retention;
grant execute on function holdfast.current_tenants(), holdfast.work_execution_now() to
  holdfast_gateway, holdfast_controller, holdfast_worker, holdfast_producer, holdfast_dispatcher, holdfast_operator, holdfast_retention;
