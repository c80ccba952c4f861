-- 0007 Execution attempts: jobs of the existing queue as phased, fenced, bounded attempts.
--
-- Adds attempts, phases, pins, objects and the slot pools over jobs that are there already. Historical jobs
-- and specs stay as they are, byte for byte: the only new column of jobs is nullable and has no default, so no
-- row is rewritten. A job is run as executions when enrolled_at is set; the direct claimant leaves it alone, and
-- the constraint below holds even against one that is older than this migration (E13, M6).

alter table holdfast.jobs add column enrolled_at timestamptz;
alter table holdfast.jobs add constraint jobs_enrolled_are_not_claimed check (enrolled_at is null or claimed_by is null) not valid;
alter table holdfast.jobs validate constraint jobs_enrolled_are_not_claimed;
create trigger jobs_enrolled_once before update on holdfast.jobs
  for each row execute function holdfast.write_once('enrolled_at');

-- How many attempts of all tenants together may run: one row a slot, so no race can hold one more (E2).
create table holdfast.slots (
  pool text not null constraint slots_pool check (pool ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
  slot smallint not null constraint slots_slot check (slot between 1 and 10000),
  tenant_id text,
  attempt_id uuid,
  taken_at timestamptz,
  primary key (pool, slot),
  constraint slots_taken check ((tenant_id is null) = (attempt_id is null) and (tenant_id is null) = (taken_at is null)),
  constraint slots_one_an_attempt unique (tenant_id, attempt_id)
);
insert into holdfast.slots (pool, slot) values ('default', 1), ('default', 2);

-- The waiting jobs that somebody is about to start, or died over.
create index leases_admission_held on holdfast.leases_admission (queue, wake_at) where holder is not null;

create table holdfast.execution_attempts (
  tenant_id text not null,
  job_id uuid not null,
  ordinal smallint not null constraint execution_attempts_at_most_two check (ordinal between 1 and 2),
  attempt_id uuid not null,
  pool text not null,
  plan jsonb not null constraint execution_attempts_plan check (pg_column_size(plan) <= 1048576),
  plan_digest text not null constraint execution_attempts_plan_digest check (plan_digest ~ '^[0-9a-f]{64}$'),
  state text not null default 'active' constraint execution_attempts_state check (state in ('active', 'finished', 'cleaned')),
  started_at timestamptz not null,
  deadline timestamptz not null,
  deadline_reached_at timestamptz,
  artifact_object text,
  artifact_manifest jsonb constraint execution_attempts_manifest check (
    jsonb_typeof(artifact_manifest) = 'array' and pg_column_size(artifact_manifest) <= 2097152),
  outcome text constraint execution_attempts_outcome check (outcome in ('succeeded', 'failed', 'cancelled')),
  failure_code text constraint execution_attempts_failure_code check (length(failure_code) <= 63),
  failure_message text constraint execution_attempts_failure_message check (length(failure_message) <= 1000),
  finished_at timestamptz,
  cleaned_at timestamptz,
  resource_version bigint not null default 1,
  primary key (tenant_id, job_id, ordinal),
  constraint execution_attempts_id unique (tenant_id, attempt_id),
  foreign key (tenant_id, job_id) references holdfast.jobs,
  constraint execution_attempts_deadline_within_three_hours check (deadline > started_at and deadline <= started_at + interval '3 hours'),
  constraint execution_attempts_finished check ((state = 'active') = (outcome is null) and (state = 'active') = (finished_at is null)),
  constraint execution_attempts_cleaned check ((state = 'cleaned') = (cleaned_at is not null)),
  constraint execution_attempts_failure_is_named check ((outcome = 'failed') = (failure_code is not null) or outcome is null),
  constraint execution_attempts_artifact check ((artifact_object is null) = (artifact_manifest is null))
);
create unique index execution_attempts_one_active on holdfast.execution_attempts (tenant_id, job_id) where state = 'active';
create index execution_attempts_to_clean on holdfast.execution_attempts (tenant_id, finished_at) where state = 'finished';
create trigger execution_attempts_keep before update on holdfast.execution_attempts
  for each row execute function holdfast.keep_columns(
    'tenant_id', 'job_id', 'ordinal', 'attempt_id', 'pool', 'plan', 'plan_digest', 'started_at', 'deadline');
create trigger execution_attempts_write_once before update on holdfast.execution_attempts
  for each row execute function holdfast.write_once(
    'deadline_reached_at', 'artifact_object', 'artifact_manifest', 'outcome', 'failure_code', 'failure_message', 'finished_at', 'cleaned_at');
create trigger execution_attempts_transitions before update of state on holdfast.execution_attempts
  for each row execute function holdfast.keep_transitions('active>finished', 'finished>cleaned');

create table holdfast.execution_phases (
  tenant_id text not null,
  attempt_id uuid not null,
  number smallint not null constraint execution_phases_number check (number between 1 and 32),
  name text not null constraint execution_phases_name check (name ~ '^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$'),
  kind text not null constraint execution_phases_kind check (kind in ('source', 'compile', 'publish')),
  state text not null default 'pending' constraint execution_phases_state check (state in ('pending', 'running', 'succeeded', 'failed', 'skipped')),
  started_at timestamptz,
  finished_at timestamptz,
  progress_message text constraint execution_phases_progress check (length(progress_message) <= 1000),
  progress_percent smallint constraint execution_phases_percent check (progress_percent between 0 and 100),
  failure_code text constraint execution_phases_failure_code check (length(failure_code) <= 63),
  failure_message text constraint execution_phases_failure_message check (length(failure_message) <= 1000),
  result jsonb constraint execution_phases_result check (jsonb_typeof(result) = 'object' and pg_column_size(result) <= 262144),
  primary key (tenant_id, attempt_id, number),
  constraint execution_phases_name_taken unique (tenant_id, attempt_id, name),
  foreign key (tenant_id, attempt_id) references holdfast.execution_attempts (tenant_id, attempt_id),
  constraint execution_phases_started check (state in ('pending', 'skipped') or started_at is not null),
  constraint execution_phases_finished check ((state in ('succeeded', 'failed', 'skipped')) = (finished_at is not null)),
  constraint execution_phases_failure_is_named check (num_nonnulls(failure_code, failure_message) = case state when 'failed' then 2 else 0 end)
);
create unique index execution_phases_one_running on holdfast.execution_phases (tenant_id, attempt_id) where state = 'running';
create trigger execution_phases_keep before update on holdfast.execution_phases
  for each row execute function holdfast.keep_columns('tenant_id', 'attempt_id', 'number', 'name', 'kind');
create trigger execution_phases_write_once before update on holdfast.execution_phases
  for each row execute function holdfast.write_once('started_at', 'finished_at', 'failure_code', 'failure_message', 'result');
create trigger execution_phases_transitions before update of state on holdfast.execution_phases
  for each row execute function holdfast.keep_transitions(
    'pending>running', 'pending>skipped', 'running>succeeded', 'running>failed');

-- The commits that the sources resolved to. Reported by the sandbox of a source phase, never changed after.
create table holdfast.source_pins (
  tenant_id text not null,
  attempt_id uuid not null,
  source text not null constraint source_pins_source check (source ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
  commit_id text not null constraint source_pins_commit check (commit_id ~ '^[0-9a-f]{40}([0-9a-f]{24})?$'),
  sandbox_id uuid not null,
  reported_at timestamptz not null default holdfast.ledger_now(),
  primary key (tenant_id, attempt_id, source),
  foreign key (tenant_id, attempt_id) references holdfast.execution_attempts (tenant_id, attempt_id),
  foreign key (tenant_id, sandbox_id) references holdfast.sandbox_attempts
);
create trigger source_pins_keep before update on holdfast.source_pins
  for each row execute function holdfast.keep_columns('tenant_id', 'attempt_id', 'source', 'commit_id', 'sandbox_id', 'reported_at');

-- What phases hand to each other and to the world: promised with length and digest before the bytes come.
create table holdfast.attempt_objects (
  tenant_id text not null,
  attempt_id uuid not null,
  phase text not null,
  name text not null constraint attempt_objects_name check (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'),
  blob_key text not null constraint attempt_objects_key check (length(blob_key) between 1 and 512),
  bytes bigint not null constraint attempt_objects_bytes check (bytes between 0 and 1099511627776),
  sha256 text not null constraint attempt_objects_sha256 check (sha256 ~ '^[0-9a-f]{64}$'),
  media_type text not null constraint attempt_objects_media_type check (length(media_type) between 1 and 127),
  sandbox_id uuid not null,
  granted_at timestamptz not null default holdfast.ledger_now(),
  stored_at timestamptz,
  removed_at timestamptz,
  primary key (tenant_id, attempt_id, phase, name),
  constraint attempt_objects_key_taken unique (tenant_id, blob_key),
  foreign key (tenant_id, attempt_id, phase) references holdfast.execution_phases (tenant_id, attempt_id, name),
  foreign key (tenant_id, sandbox_id) references holdfast.sandbox_attempts
);
create trigger attempt_objects_keep before update on holdfast.attempt_objects
  for each row execute function holdfast.keep_columns(
    'tenant_id', 'attempt_id', 'phase', 'name', 'blob_key', 'bytes', 'sha256', 'media_type', 'sandbox_id', 'granted_at');
create trigger attempt_objects_write_once before update on holdfast.attempt_objects
  for each row execute function holdfast.write_once('stored_at', 'removed_at');

-- A phase after the sources starts only when every source of the plan has its pin (E9).
create function holdfast.require_pins() returns trigger
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
declare
  missing text;
begin
  select string_agg(planned.source, ', ' order by planned.source) into missing
  from holdfast.execution_attempts a, jsonb_object_keys(a.plan -> 'sources') as planned(source)
  where a.tenant_id = new.tenant_id and a.attempt_id = new.attempt_id
    and not exists (
      select from holdfast.source_pins p
      where p.tenant_id = new.tenant_id and p.attempt_id = new.attempt_id and p.source = planned.source);
  if missing is not null then
    raise exception using errcode = 'HF007', message = format('phase %s needs the commit pins of: %s', new.name, missing);
  end if;
  return new;
end
$$;
create trigger execution_phases_require_pins before update of state on holdfast.execution_phases
  for each row when (new.state = 'running' and old.state <> 'running' and new.kind <> 'source')
  execute function holdfast.require_pins();

-- Phases go one after the other: one starts when all before it have succeeded, and ends when nothing of it runs any
-- more, by proof (E8); it has succeeded only when what was released of it came to a good end.
create function holdfast.require_phase_order() returns trigger
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
declare
  open text;
begin
  if new.state = 'running' then
    select string_agg(p.name || ' is ' || p.state, ', ' order by p.number) into open
    from holdfast.execution_phases p
    where p.tenant_id = new.tenant_id and p.attempt_id = new.attempt_id and p.number < new.number and p.state <> 'succeeded';
  else
    select string_agg(s.name || ' is ' || s.state, ', ' order by s.name) into open
    from holdfast.sandbox_attempts s
    where s.tenant_id = new.tenant_id and s.owner_kind = 'execution' and s.owner_id = new.attempt_id and s.step = new.name
      and s.state not in ('stopped', 'removed');
  end if;
  if open is null and new.state = 'succeeded' and not exists (
    select from holdfast.sandbox_attempts s
    where s.tenant_id = new.tenant_id and s.owner_kind = 'execution' and s.owner_id = new.attempt_id and s.step = new.name
      and s.released_at is not null and s.outcome = 'exited' and s.exit_code = 0) then
    open := 'nothing of it exited with 0';
  end if;
  if open is not null then
    raise exception using errcode = 'HF008', message = format('phase %s can''t be %s: %s', new.name, new.state, open);
  end if;
  return new;
end
$$;
create trigger execution_phases_require_order before update of state on holdfast.execution_phases
  for each row when (new.state = 'running' and old.state <> 'running' or old.state = 'running' and new.state <> 'running')
  execute function holdfast.require_phase_order();

-- An attempt ends only when nothing of it runs, by proof or by an audited override, and its logs are stored or
-- their loss is recorded; and it has succeeded only when each of its phases has (E10).
create function holdfast.require_proven_end() returns trigger
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
declare
  open text;
begin
  select string_agg(s.name, ', ' order by s.name) into open
  from holdfast.sandbox_attempts s
  where s.tenant_id = new.tenant_id and s.owner_kind = 'execution' and s.owner_id = new.attempt_id
    and (s.state not in ('stopped', 'removed') or (s.uid is not null and s.log_complete_at is null and s.log_lost_reason is null));
  if open is not null then
    raise exception using errcode = 'HF008', message = format('not proven stopped, or logs not stored: %s', open);
  end if;
  select string_agg(p.name || ' is ' || p.state, ', ' order by p.number) into open
  from holdfast.execution_phases p
  where p.tenant_id = new.tenant_id and p.attempt_id = new.attempt_id
    and (p.state = 'running' or (new.outcome = 'succeeded' and p.state <> 'succeeded'));
  if open is not null then
    raise exception using errcode = 'HF008', message = format('an attempt can''t be %s while %s', new.outcome, open);
  end if;
  return new;
end
$$;
create trigger execution_attempts_require_proven_end before update of state on holdfast.execution_attempts
  for each row when (new.state = 'finished' and old.state = 'active')
  execute function holdfast.require_proven_end();

do $$
declare
  name text;
begin
  foreach name in array array['execution_attempts', 'execution_phases', 'source_pins', 'attempt_objects'] loop
    execute format('alter table holdfast.%I enable row level security', name);
    execute format('alter table holdfast.%I force row level security', name);
    execute format('create policy %I on holdfast.%I to holdfast_gateway, holdfast_controller, holdfast_operator, holdfast_retention
      using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant())', name || '_tenant', name);
    execute format('grant select on holdfast.%I to holdfast_gateway, holdfast_controller, holdfast_operator, holdfast_retention', name);
    execute format('grant insert on holdfast.%I to holdfast_controller', name);
  end loop;
end
$$;
grant update (state, deadline_reached_at, artifact_object, artifact_manifest, outcome, failure_code, failure_message,
  finished_at, cleaned_at, resource_version) on holdfast.execution_attempts to holdfast_controller;
grant update (resource_version) on holdfast.execution_attempts to holdfast_operator, holdfast_retention;
grant update (state, started_at, finished_at, failure_code, failure_message, progress_message, progress_percent, result)
  on holdfast.execution_phases to holdfast_controller;
grant update (stored_at, removed_at) on holdfast.attempt_objects to holdfast_controller;

-- Slots belong to the installation. A tenant's transaction sees the free ones and its own.
alter table holdfast.slots enable row level security;
alter table holdfast.slots force row level security;
create policy slots_controller on holdfast.slots to holdfast_controller
  using (tenant_id is null or tenant_id = holdfast.current_tenant())
  with check (tenant_id is null or tenant_id = holdfast.current_tenant());
create policy slots_all on holdfast.slots for select to holdfast_dispatcher using (true);
-- Which pools there are: a job for one that isn't would wait for ever. The column grant keeps the holders out.
create policy slots_pools on holdfast.slots for select to holdfast_gateway using (true);
create policy slots_operator on holdfast.slots to holdfast_operator using (true) with check (true);
grant select, update (tenant_id, attempt_id, taken_at) on holdfast.slots to holdfast_controller;
grant select on holdfast.slots to holdfast_dispatcher;
grant select (pool) on holdfast.slots to holdfast_gateway;
grant select, insert, delete on holdfast.slots to holdfast_operator;
