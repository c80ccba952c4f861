-- 0008 Agents and sessions: what an agent is, and the conversations that live on.
--
-- An agent is a name with numbered templates, each of which never changes. A session belongs to one agent, runs the
-- template version that it wants, and has a head: the last revision of its bundle that was committed. What is
-- wanted of a session (template version, desired state, permissions) has a generation; what was observed of it says
-- for which generation, and never goes back to an older one (G12). Deletion absorbs whatever is observed later (G8).
--
-- session_leases is the view of the one lease table that shows who attends to which session: a lease is there only
-- while the session has something to do, so a session that is idle holds nothing.

create table holdfast.agents (
  tenant_id text not null,
  agent_id uuid not null,
  name text not null constraint agents_name check (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
  -- Of all its templates: a session's sandboxes are found again on the runtime that made them.
  runtime text not null constraint agents_runtime check (length(runtime) between 1 and 63),
  version integer not null default 1 constraint agents_version check (version >= 1),
  labels jsonb not null default '{}' constraint agents_labels check (jsonb_typeof(labels) = 'object' and pg_column_size(labels) <= 16384),
  resource_version bigint not null default 1,
  created_at timestamptz not null default holdfast.ledger_now(),
  updated_at timestamptz not null default holdfast.ledger_now(),
  deleted_at timestamptz,
  primary key (tenant_id, agent_id)
);
create unique index agents_name_taken on holdfast.agents (tenant_id, name) where deleted_at is null;
create index agents_by_age on holdfast.agents (tenant_id, created_at desc, agent_id desc);
create trigger agents_keep before update on holdfast.agents
  for each row execute function holdfast.keep_columns('tenant_id', 'agent_id', 'name', 'runtime', 'created_at');
create trigger agents_deleted_once before update on holdfast.agents
  for each row execute function holdfast.write_once('deleted_at');

create table holdfast.agent_templates (
  tenant_id text not null,
  agent_id uuid not null,
  version integer not null constraint agent_templates_version check (version >= 1),
  template jsonb not null constraint agent_templates_bound check (jsonb_typeof(template) = 'object' and pg_column_size(template) <= 524288),
  template_digest text not null constraint agent_templates_digest check (template_digest ~ '^[0-9a-f]{64}$'),
  created_at timestamptz not null default holdfast.ledger_now(),
  primary key (tenant_id, agent_id, version),
  foreign key (tenant_id, agent_id) references holdfast.agents
);
create trigger agent_templates_keep before update on holdfast.agent_templates
  for each row execute function holdfast.keep_columns(
    'tenant_id', 'agent_id', 'version', 'template', 'template_digest', 'created_at');

create table holdfast.cloud_sessions (
  tenant_id text not null,
  session_id uuid not null,
  agent_id uuid not null,
  labels jsonb not null default '{}' constraint cloud_sessions_labels check (jsonb_typeof(labels) = 'object' and pg_column_size(labels) <= 16384),
  resource_version bigint not null default 1,
  created_at timestamptz not null default holdfast.ledger_now(),
  updated_at timestamptz not null default holdfast.ledger_now(),
  -- What is wanted. Each change of it is a generation.
  generation bigint not null default 1,
  agent_version integer not null,
  desired_state text not null default 'active'
    constraint cloud_sessions_desired check (desired_state in ('active', 'suspended', 'closed', 'deleted')),
  permissions text[] not null default '{}' constraint cloud_sessions_permissions check (cardinality(permissions) <= 64),
  -- What was observed, and of which generation.
  observed_generation bigint not null default 0,
  observed_state text not null default 'pending' constraint cloud_sessions_observed
    check (observed_state in ('pending', 'idle', 'running', 'waiting', 'suspended', 'closed', 'deleted')),
  observed_at timestamptz,
  deleted_at timestamptz,
  -- How many activations were admitted, which gives each its place.
  admitted bigint not null default 0,
  head_revision bigint not null default 0,
  -- What 0010 refers to a revision by. Here, because a stored column that comes later rewrites every row.
  head_key bigint generated always as (nullif(head_revision, 0)) stored,
  primary key (tenant_id, session_id),
  foreign key (tenant_id, agent_id, agent_version) references holdfast.agent_templates (tenant_id, agent_id, version),
  constraint cloud_sessions_observes_the_past check (observed_generation between 0 and generation),
  constraint cloud_sessions_observed_at_all check ((observed_generation = 0) = (observed_state = 'pending') and (observed_generation = 0) = (observed_at is null)),
  constraint cloud_sessions_deleted check ((observed_state = 'deleted') = (deleted_at is not null) and (observed_state <> 'deleted' or desired_state = 'deleted'))
);
create index cloud_sessions_by_age on holdfast.cloud_sessions (tenant_id, created_at desc, session_id desc);
create index cloud_sessions_of_agent on holdfast.cloud_sessions (tenant_id, agent_id) where deleted_at is null;
create index cloud_sessions_labels on holdfast.cloud_sessions using gin (labels jsonb_path_ops);
create trigger cloud_sessions_keep before update on holdfast.cloud_sessions
  for each row execute function holdfast.keep_columns('tenant_id', 'session_id', 'agent_id', 'created_at');
create trigger cloud_sessions_write_once before update on holdfast.cloud_sessions
  for each row execute function holdfast.write_once('deleted_at');

-- What moves only forward: generations, the place of the next activation, and the head, one revision at a time (S3).
create function holdfast.keep_session_order() returns trigger
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
declare
  wanted boolean := (new.agent_version, new.desired_state, new.permissions)
    is distinct from (old.agent_version, old.desired_state, old.permissions);
begin
  if new.generation <> old.generation + wanted::integer then
    raise exception using errcode = 'HF002', table = 'cloud_sessions', column = 'generation',
      message = 'the generation counts the changes of what is wanted, and nothing else';
  elsif new.observed_generation < old.observed_generation then
    raise exception using errcode = 'HF002', table = 'cloud_sessions', column = 'observed_generation',
      message = format('generation %s was observed already', old.observed_generation);
  elsif old.desired_state = 'deleted' and new.desired_state <> 'deleted' then
    raise exception using errcode = 'HF003', table = 'cloud_sessions', column = 'desired_state',
      message = 'a deletion is never taken back';
  elsif old.observed_state = 'deleted' and new.observed_state <> 'deleted' then
    raise exception using errcode = 'HF003', table = 'cloud_sessions', column = 'observed_state',
      message = 'a deleted session is observed as nothing else';
  elsif new.head_revision not in (old.head_revision, old.head_revision + 1) then
    raise exception using errcode = 'HF009', table = 'cloud_sessions', column = 'head_revision',
      message = format('the head is at %s and can''t move to %s', old.head_revision, new.head_revision);
  elsif new.admitted not in (old.admitted, old.admitted + 1) then
    raise exception using errcode = 'HF002', table = 'cloud_sessions', column = 'admitted',
      message = 'activations are admitted one by one';
  end if;
  return new;
end
$$;
create trigger cloud_sessions_keep_order before update on holdfast.cloud_sessions
  for each row execute function holdfast.keep_session_order();

alter table holdfast.agents enable row level security;
alter table holdfast.agents force row level security;
alter table holdfast.agent_templates enable row level security;
alter table holdfast.agent_templates force row level security;
alter table holdfast.cloud_sessions enable row level security;
alter table holdfast.cloud_sessions force row level security;
create policy agents_tenant on holdfast.agents to holdfast_gateway, holdfast_controller, holdfast_operator
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());
create policy agent_templates_tenant on holdfast.agent_templates to holdfast_gateway, holdfast_controller, holdfast_operator
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());
create policy cloud_sessions_tenant on holdfast.cloud_sessions
  to holdfast_gateway, holdfast_controller, holdfast_operator, holdfast_retention
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());

grant select, insert on holdfast.agents, holdfast.agent_templates to holdfast_gateway;
grant update (version, labels, resource_version, updated_at, deleted_at) on holdfast.agents to holdfast_gateway;
grant select on holdfast.agents, holdfast.agent_templates to holdfast_controller, holdfast_operator;
grant select, insert on holdfast.cloud_sessions to holdfast_gateway;
grant update (labels, resource_version, updated_at, generation, agent_version, desired_state, permissions, admitted, head_revision)
  on holdfast.cloud_sessions to holdfast_gateway;
grant select on holdfast.cloud_sessions to holdfast_controller, holdfast_operator, holdfast_retention;
grant update (resource_version, updated_at, observed_generation, observed_state, observed_at, deleted_at, head_revision)
  on holdfast.cloud_sessions to holdfast_controller;
grant update (resource_version) on holdfast.cloud_sessions to holdfast_retention;

-- At most one row a session, and its epoch only grows (S4): the lease table's own key and trigger.
create view holdfast.session_leases with (security_invoker = true) as
  select l.tenant_id, l.resource_id as session_id, l.queue, l.due_at, l.wake_at, l.holder, l.epoch
  from holdfast.leases l
  where l.kind = 'session';
grant select on holdfast.session_leases to
  holdfast_gateway, holdfast_controller, holdfast_operator, holdfast_retention, holdfast_dispatcher;
