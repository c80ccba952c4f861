-- 0006 Sandboxes: one row for each external object that runs one thing once, and its output.
--
--   planned -> held -> released -> stopping -> stopped -> removed
--
-- The row owns its name from the moment it is planned. The UID that the outside gave is committed before the
-- object may start, and is never replaced (E7). At most one sandbox of an owner is alive, so a phase can't
-- start before everything of the phases before it is proven stopped (E8); and at most one sandbox of a step was
-- ever released, so nothing runs twice within an attempt.

create table holdfast.sandbox_attempts (
  tenant_id text not null,
  sandbox_id uuid not null,
  owner_kind text not null constraint sandbox_attempts_owner_kind check (owner_kind in ('execution', 'activation')),
  owner_id uuid not null,
  step text not null constraint sandbox_attempts_step check (length(step) between 1 and 63),
  ordinal integer not null constraint sandbox_attempts_ordinal check (ordinal between 1 and 100),
  name text not null constraint sandbox_attempts_name check (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
  runtime text not null constraint sandbox_attempts_runtime check (length(runtime) between 1 and 63),
  spec jsonb not null constraint sandbox_attempts_spec check (pg_column_size(spec) <= 1048576),
  spec_digest text not null constraint sandbox_attempts_digest check (spec_digest ~ '^[0-9a-f]{64}$'),
  deadline timestamptz not null,
  state text not null default 'planned'
    constraint sandbox_attempts_state check (state in ('planned', 'held', 'released', 'stopping', 'stopped', 'removed')),
  uid text constraint sandbox_attempts_uid check (length(uid) between 1 and 255),
  planned_at timestamptz not null default holdfast.ledger_now(),
  held_at timestamptz,
  released_at timestamptz,
  stopping_at timestamptz,
  stop_reason text constraint sandbox_attempts_stop_reason check (length(stop_reason) <= 63),
  stopped_at timestamptz,
  stop_proof text constraint sandbox_attempts_proof check (length(stop_proof) <= 1000),
  removed_at timestamptz,
  outcome text constraint sandbox_attempts_outcome check (outcome in
    ('exited', 'signaled', 'out_of_memory', 'evicted', 'deadline', 'stopped', 'never_started', 'lost', 'start_failed', 'unknown')),
  exit_code integer,
  outcome_message text constraint sandbox_attempts_message check (length(outcome_message) <= 1000),
  -- The world couldn't be asked, since when and why. Not a state: it ends when the world answers.
  stop_unproven_at timestamptz,
  stop_unproven_reason text constraint sandbox_attempts_unproven check (length(stop_unproven_reason) <= 1000),
  -- An operator declared it stopped without proof. Audited in commands.
  overridden_by uuid,
  log_cursor text constraint sandbox_attempts_log_cursor check (length(log_cursor) <= 200),
  log_seq bigint not null default 0,
  log_bytes bigint not null default 0,
  log_truncated_at timestamptz,
  log_complete_at timestamptz,
  log_lost_reason text constraint sandbox_attempts_log_lost check (length(log_lost_reason) <= 1000),
  primary key (tenant_id, sandbox_id),
  constraint sandbox_attempts_name_taken unique (tenant_id, name),
  constraint sandbox_attempts_step_ordinal unique (tenant_id, owner_kind, owner_id, step, ordinal),
  constraint sandbox_attempts_uid_before_start check (state not in ('held', 'released') or uid is not null),
  constraint sandbox_attempts_released check (state <> 'released' or released_at is not null),
  constraint sandbox_attempts_stop_is_proven check (
    state not in ('stopped', 'removed') or (stopped_at is not null and outcome is not null and (stop_proof is not null or overridden_by is not null)))
);
create unique index sandbox_attempts_one_alive on holdfast.sandbox_attempts (tenant_id, owner_kind, owner_id)
  where state in ('planned', 'held', 'released', 'stopping');
create unique index sandbox_attempts_one_start on holdfast.sandbox_attempts (tenant_id, owner_kind, owner_id, step)
  where released_at is not null;
-- Those that the world can't be asked about are few, and are counted over all tenants.
create index sandbox_attempts_unproven on holdfast.sandbox_attempts (stop_unproven_at) where stop_unproven_at is not null;
create trigger sandbox_attempts_keep before update on holdfast.sandbox_attempts
  for each row execute function holdfast.keep_columns(
    'tenant_id', 'sandbox_id', 'owner_kind', 'owner_id', 'step', 'ordinal', 'name', 'runtime', 'spec', 'spec_digest', 'deadline', 'planned_at');
create trigger sandbox_attempts_write_once before update on holdfast.sandbox_attempts
  for each row execute function holdfast.write_once(
    'uid', 'held_at', 'released_at', 'stopping_at', 'stop_reason', 'stopped_at', 'stop_proof', 'removed_at',
    'outcome', 'exit_code', 'outcome_message', 'overridden_by', 'log_truncated_at', 'log_complete_at', 'log_lost_reason');
create trigger sandbox_attempts_transitions before update of state on holdfast.sandbox_attempts
  for each row execute function holdfast.keep_transitions(
    'planned>held', 'planned>stopped',
    'held>released', 'held>stopping', 'held>stopped',
    'released>stopping', 'released>stopped', 'stopping>stopped', 'stopped>removed');

-- Output in order, made safe before it comes here. (sandbox, seq) makes a replay of a chunk change nothing (E15).
create table holdfast.log_chunks (
  tenant_id text not null,
  sandbox_id uuid not null,
  seq bigint not null constraint log_chunks_seq check (seq >= 1),
  stream text not null constraint log_chunks_stream check (stream in ('stdout', 'stderr', 'system')),
  at timestamptz not null,
  body text not null constraint log_chunks_bound check (octet_length(body) <= 262144),
  primary key (tenant_id, sandbox_id, seq),
  foreign key (tenant_id, sandbox_id) references holdfast.sandbox_attempts
);
create trigger log_chunks_keep before update on holdfast.log_chunks
  for each row execute function holdfast.keep_columns('tenant_id', 'sandbox_id', 'seq', 'stream', 'at', 'body');

-- The output of an owner that has ended: one compressed blob of JSON lines, one a chunk. It is recorded before the
-- chunks are deleted, and stays as a tombstone when its own retention has ended (E19).
create table holdfast.log_archives (
  tenant_id text not null,
  owner_kind text not null constraint log_archives_owner_kind check (owner_kind in ('execution', 'activation')),
  owner_id uuid not null,
  blob_key text not null constraint log_archives_key check (length(blob_key) between 1 and 512),
  bytes bigint not null constraint log_archives_bytes check (bytes > 0),
  sha256 text not null constraint log_archives_sha256 check (sha256 ~ '^[0-9a-f]{64}$'),
  lines bigint not null constraint log_archives_lines check (lines > 0),
  archived_at timestamptz not null,
  retain_until timestamptz not null,
  removed_at timestamptz,
  primary key (tenant_id, owner_kind, owner_id),
  constraint log_archives_key_taken unique (tenant_id, blob_key),
  constraint log_archives_retained_for_a_time check (retain_until > archived_at),
  constraint log_archives_removed_after_retention check (removed_at is null or removed_at >= retain_until)
);
create trigger log_archives_keep before update on holdfast.log_archives
  for each row execute function holdfast.keep_columns(
    'tenant_id', 'owner_kind', 'owner_id', 'blob_key', 'bytes', 'sha256', 'lines', 'archived_at', 'retain_until');
create trigger log_archives_removed_once before update on holdfast.log_archives
  for each row execute function holdfast.write_once('removed_at');

-- A chunk goes only after its owner's output is archived, so that a crash loses nothing.
create function holdfast.require_log_archive() returns trigger
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
declare
  name text;
begin
  select s.name into name
  from (select distinct d.tenant_id, d.sandbox_id from deleted d) d
  join holdfast.sandbox_attempts s on s.tenant_id = d.tenant_id and s.sandbox_id = d.sandbox_id
  where not exists (
    select from holdfast.log_archives a
    where a.tenant_id = s.tenant_id and a.owner_kind = s.owner_kind and a.owner_id = s.owner_id)
  limit 1;
  if name is not null then
    raise exception using errcode = 'HF002', table = 'log_chunks', message = format('the output of %s is not archived yet', name);
  end if;
  return null;
end
$$;
create trigger log_chunks_require_archive after delete on holdfast.log_chunks
  referencing old table as deleted for each statement execute function holdfast.require_log_archive();

-- Outside objects that no live attempt owned and that the sweep removed (E21): what they were, and why.
create table holdfast.swept_sandboxes (
  tenant_id text not null,
  name text not null,
  uid text not null,
  runtime text not null,
  epoch bigint not null,
  reason text not null constraint swept_sandboxes_reason check (reason in ('unknown', 'other_uid', 'settled')),
  swept_at timestamptz not null default holdfast.ledger_now(),
  primary key (tenant_id, name, uid)
);
create trigger swept_sandboxes_keep before update on holdfast.swept_sandboxes
  for each row execute function holdfast.keep_columns('tenant_id', 'name', 'uid', 'runtime', 'epoch', 'reason', 'swept_at');

alter table holdfast.swept_sandboxes enable row level security;
alter table holdfast.swept_sandboxes force row level security;
create policy swept_sandboxes_tenant on holdfast.swept_sandboxes to holdfast_controller, holdfast_operator
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());
grant select, insert on holdfast.swept_sandboxes to holdfast_controller;
grant select on holdfast.swept_sandboxes to holdfast_operator;

alter table holdfast.sandbox_attempts enable row level security;
alter table holdfast.sandbox_attempts force row level security;
alter table holdfast.log_chunks enable row level security;
alter table holdfast.log_chunks force row level security;
alter table holdfast.log_archives enable row level security;
alter table holdfast.log_archives force row level security;
create policy sandbox_attempts_tenant on holdfast.sandbox_attempts
  to holdfast_gateway, holdfast_controller, holdfast_operator, holdfast_retention
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());
-- To be counted for metrics; the column grant shows nothing else of them.
create policy sandbox_attempts_unproven on holdfast.sandbox_attempts for select to holdfast_dispatcher
  using (stop_unproven_at is not null);
grant select (stop_unproven_at) on holdfast.sandbox_attempts to holdfast_dispatcher;
create policy log_chunks_tenant on holdfast.log_chunks
  to holdfast_gateway, holdfast_controller, holdfast_operator, holdfast_retention
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());
create policy log_archives_tenant on holdfast.log_archives
  to holdfast_gateway, holdfast_controller, holdfast_operator, holdfast_retention
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());
grant select on holdfast.sandbox_attempts, holdfast.log_chunks to holdfast_gateway, holdfast_operator, holdfast_retention;
grant select, insert on holdfast.sandbox_attempts, holdfast.log_chunks to holdfast_controller;
grant update (state, uid, held_at, released_at, stopping_at, stop_reason, stopped_at, stop_proof, removed_at, outcome,
  exit_code, outcome_message, stop_unproven_at, stop_unproven_reason, log_cursor, log_seq, log_bytes, log_truncated_at,
  log_complete_at, log_lost_reason) on holdfast.sandbox_attempts to holdfast_controller;
grant update (state, stopped_at, outcome, outcome_message, overridden_by) on holdfast.sandbox_attempts to holdfast_operator;
-- An operator may say that one has stopped, in its own name, and only where the world can't be asked.
create policy sandbox_attempts_override on holdfast.sandbox_attempts as restrictive for update to holdfast_operator
  using (stop_unproven_at is not null and overridden_by is null) with check (state = 'stopped' and overridden_by is not null);
grant delete on holdfast.log_chunks to holdfast_controller;
grant select on holdfast.log_archives to holdfast_gateway, holdfast_operator;
grant select, insert on holdfast.log_archives to holdfast_controller;
grant select, update (removed_at) on holdfast.log_archives to holdfast_retention;

-- The fence of a sandbox's own reports: released, still this UID, not stopping, not past its deadline. A
-- controller's takeover does not refuse a healthy sandbox (E9, E17). Its caller locks the owner first.
create function holdfast.assert_sandbox_reports(p_sandbox uuid) returns void
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
declare
  sandbox holdfast.sandbox_attempts;
begin
  select * into sandbox from holdfast.sandbox_attempts s
  where s.tenant_id = holdfast.current_tenant() and s.sandbox_id = p_sandbox
  for no key update;
  if not found then
    raise exception using errcode = 'HF006', message = 'there is no such sandbox';
  elsif sandbox.state <> 'released' then
    raise exception using errcode = 'HF006', message = format('the sandbox is %s and may not report', sandbox.state);
  elsif sandbox.deadline <= holdfast.ledger_now() then
    raise exception using errcode = 'HF006', message = 'the sandbox is past its deadline';
  end if;
end
$$;
grant execute on function holdfast.assert_sandbox_reports(uuid) to holdfast_controller;
