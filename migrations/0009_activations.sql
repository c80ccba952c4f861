-- 0009 Activations: what a session was asked, each run to exactly one end.
--
--   queued -> running -> committing -> committed
--                                   -> waiting -> queued
--
-- An activation has the id that its client gave it, unique within its session, and the digest of what was asked: the
-- same again is the same activation, also after its end; other content under the same id is a conflict (S2). Those of
-- one session run one at a time, in the order of their admission. Its sandboxes are rows of sandbox_attempts with
-- the owner kind 'activation', so all that is true of sandboxes is true here: `running` ends only when nothing of it
-- runs any more, by proof, and its output is stored. What the agent said at the end (`proposed_*`) is stored before
-- anything is made of it; the outcome is written once.

create table holdfast.activations (
  tenant_id text not null,
  session_id uuid not null,
  -- The client's. Another session may have the same.
  activation_id uuid not null,
  -- Ours: for leases, sandboxes and changes, which know of no session.
  activation_uid uuid not null,
  ordinal bigint not null constraint activations_ordinal check (ordinal >= 1),
  content jsonb not null constraint activations_content check (pg_column_size(content) <= 524288),
  content_digest text not null constraint activations_digest check (content_digest ~ '^[0-9a-f]{64}$'),
  state text not null default 'queued' constraint activations_state
    check (state in ('queued', 'running', 'committing', 'waiting', 'committed', 'failed', 'cancelled')),
  resource_version bigint not null default 1,
  admitted_at timestamptz not null default holdfast.ledger_now(),
  cancel_requested_at timestamptz,
  cancel_reason text constraint activations_cancel_reason check (length(cancel_reason) <= 1000),
  -- Of the present run, or the last one: its number, what it began from and with, and why the one before it ended.
  tries integer not null default 0 constraint activations_tries check (tries between 0 and 100),
  -- Failed in a way that another run may mend. Starts after required actions don't count.
  failures integer not null default 0 constraint activations_failures check (failures between 0 and 100),
  started_at timestamptz,
  retry_at timestamptz,
  base_revision bigint,
  agent_version integer,
  last_failure_code text constraint activations_last_failure_code check (length(last_failure_code) <= 63),
  last_failure_message text constraint activations_last_failure_message check (length(last_failure_message) <= 1000),
  -- How far the present run's output was read (agent-protocol.ts): the last chunk, what was understood of it, and
  -- the beginning of a line whose end has not come. Done: nothing more comes.
  output_sandbox uuid,
  output_read bigint not null default 0,
  output_stage text not null default 'begun' constraint activations_output_stage check (output_stage in ('begun', 'started', 'ended')),
  output_lines integer not null default 0,
  output_bytes bigint not null default 0,
  output_rest bytea not null default '' constraint activations_output_rest check (octet_length(output_rest) <= 131072),
  output_fault_code text constraint activations_output_fault_code check (length(output_fault_code) <= 63),
  output_fault text constraint activations_output_fault check (length(output_fault) <= 1000 and (output_fault is null) = (output_fault_code is null)),
  output_done boolean not null default false,
  -- Over all runs, so that no two events of an activation have one number.
  events bigint not null default 0 constraint activations_events check (events >= 0),
  -- What the agent said at the end of the present run.
  proposed_by uuid,
  candidate_sha256 text constraint activations_candidate check (candidate_sha256 ~ '^[0-9a-f]{64}$'),
  reply jsonb constraint activations_reply check (pg_column_size(reply) <= 524288),
  required_action jsonb constraint activations_required_action check (
    jsonb_typeof(required_action) = 'object' and pg_column_size(required_action) <= 8192
    and required_action ->> 'type' in ('grant_permission', 'retry_activation')),
  -- The end, once.
  finished_at timestamptz,
  revision bigint,
  failure_code text constraint activations_failure_code check (length(failure_code) <= 63),
  failure_message text constraint activations_failure_message check (length(failure_message) <= 1000),
  cleaned_at timestamptz,
  primary key (tenant_id, session_id, activation_id),
  constraint activations_uid_taken unique (tenant_id, activation_uid),
  constraint activations_place_taken unique (tenant_id, session_id, ordinal),
  foreign key (tenant_id, session_id) references holdfast.cloud_sessions,
  constraint activations_finished check ((state in ('committed', 'failed', 'cancelled')) = (finished_at is not null)),
  constraint activations_committed check ((state = 'committed') = (revision is not null)),
  constraint activations_failure_is_named check ((state = 'failed') = (failure_code is not null) and (failure_code is null) = (failure_message is null)),
  constraint activations_cancel_has_reason check ((cancel_requested_at is null) = (cancel_reason is null)),
  constraint activations_cancelled_was_asked check (state <> 'cancelled' or cancel_requested_at is not null),
  constraint activations_commit_was_not_cancelled check (state <> 'committed' or cancel_requested_at is null),
  constraint activations_started check (state in ('queued', 'cancelled') or (started_at is not null and base_revision is not null and agent_version is not null and tries >= 1)),
  constraint activations_proposed check (state not in ('committing', 'waiting', 'committed') or proposed_by is not null),
  constraint activations_waits_for_something check (state <> 'waiting' or required_action is not null),
  constraint activations_commits_what_is_whole check (state <> 'committed' or required_action is null),
  constraint activations_proposal_is_ones check (proposed_by is not null or (candidate_sha256 is null and reply is null and required_action is null)),
  constraint activations_cleaned_after_the_end check (cleaned_at is null or finished_at is not null)
);
-- One at a time: the others wait in their order.
create unique index activations_one_at_work on holdfast.activations (tenant_id, session_id)
  where state in ('running', 'committing', 'waiting');
create index activations_unfinished on holdfast.activations (tenant_id, session_id, ordinal)
  where state in ('queued', 'running', 'committing', 'waiting');
create index activations_running on holdfast.activations (tenant_id) where state in ('running', 'committing');
create index activations_to_clean on holdfast.activations (tenant_id, finished_at) where finished_at is not null and cleaned_at is null;
create trigger activations_keep before update on holdfast.activations
  for each row execute function holdfast.keep_columns(
    'tenant_id', 'session_id', 'activation_id', 'activation_uid', 'ordinal', 'content', 'content_digest', 'admitted_at');
create trigger activations_write_once before update on holdfast.activations
  for each row execute function holdfast.write_once(
    'cancel_requested_at', 'cancel_reason', 'finished_at', 'revision', 'failure_code', 'failure_message', 'cleaned_at');
create trigger activations_transitions before update of state on holdfast.activations
  for each row execute function holdfast.keep_transitions(
    'queued>running', 'queued>cancelled',
    'running>committing', 'running>queued', 'running>failed', 'running>cancelled',
    'committing>committed', 'committing>waiting', 'committing>queued', 'committing>failed', 'committing>cancelled',
    'waiting>queued', 'waiting>cancelled');

-- An activation starts when all before it have ended, from the present head; and it moves on from there only when
-- nothing of it runs, by proof, and its output is stored. What follows is only of what it said in a run that went well.
create function holdfast.require_activation_order() returns trigger
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
declare
  open text;
  head bigint;
begin
  if new.state = 'running' then
    select string_agg(a.activation_id || ' is ' || a.state, ', ' order by a.ordinal) into open
    from holdfast.activations a
    where a.tenant_id = new.tenant_id and a.session_id = new.session_id and a.ordinal < new.ordinal
      and a.state in ('queued', 'running', 'committing', 'waiting');
    if open is not null then
      raise exception using errcode = 'HF008', message = format('activation %s can''t start: %s', new.activation_id, open);
    end if;
    select s.head_revision into strict head from holdfast.cloud_sessions s
    where s.tenant_id = new.tenant_id and s.session_id = new.session_id;
    if new.base_revision <> head then
      raise exception using errcode = 'HF009', message = format('the head is at %s, not at %s', head, new.base_revision);
    end if;
    return new;
  end if;
  select string_agg(s.name || ' is ' || s.state, ', ' order by s.name) into open
  from holdfast.sandbox_attempts s
  where s.tenant_id = new.tenant_id and s.owner_kind = 'activation' and s.owner_id = new.activation_uid
    and (s.state not in ('stopped', 'removed') or (s.uid is not null and s.log_complete_at is null and s.log_lost_reason is null));
  if open is null and new.state = 'committing' and not exists (
    select from holdfast.sandbox_attempts s
    where s.tenant_id = new.tenant_id and s.sandbox_id = new.proposed_by and s.owner_kind = 'activation'
      and s.owner_id = new.activation_uid and s.released_at is not null and s.outcome = 'exited' and s.exit_code = 0) then
    open := 'nothing of it exited with 0';
  end if;
  if open is not null then
    raise exception using errcode = 'HF008',
      message = format('activation %s can''t be %s: %s', new.activation_id, new.state, open);
  end if;
  return new;
end
$$;
create trigger activations_require_order before update of state on holdfast.activations
  for each row when (new.state <> old.state) execute function holdfast.require_activation_order();

alter table holdfast.activations enable row level security;
alter table holdfast.activations force row level security;
create policy activations_tenant on holdfast.activations
  to holdfast_gateway, holdfast_controller, holdfast_operator, holdfast_retention
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());
grant select, insert on holdfast.activations to holdfast_gateway;
grant update (state, resource_version, cancel_requested_at, cancel_reason, finished_at, retry_at, proposed_by,
  candidate_sha256, reply, required_action) on holdfast.activations to holdfast_gateway;
grant select on holdfast.activations to holdfast_controller, holdfast_operator, holdfast_retention;
grant update (state, resource_version, tries, failures, started_at, retry_at, base_revision, agent_version, last_failure_code,
  last_failure_message, output_sandbox, output_read, output_stage, output_lines, output_bytes,
  output_rest, output_fault_code, output_fault, output_done, events, proposed_by,
  candidate_sha256, reply, required_action, finished_at, revision, failure_code, failure_message, cleaned_at)
  on holdfast.activations to holdfast_controller;
grant update (resource_version) on holdfast.activations to holdfast_retention;
