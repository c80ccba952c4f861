-- 0005 Jobs: the queue, the specs in it, and the artifacts that come out.
--
-- A spec is stored once under its digest and never changes. A job refers to a spec; its labels, its priority
-- while it waits, and its cancellation are all that can change from outside. The claim_* and container_id
-- columns belong to the direct claimant, which runs a job as a container on its own host, straight from this
-- queue: `state = 'queued'`, oldest first.
--
-- The bounds of jsonb columns are well above those of the API, which count bytes of JSON: many small members take
-- more room in jsonb than in text.

create table holdfast.job_specs (
  tenant_id text not null,
  spec_digest text not null constraint job_specs_digest check (spec_digest ~ '^[0-9a-f]{64}$'),
  spec jsonb not null constraint job_specs_bound check (pg_column_size(spec) <= 524288),
  created_at timestamptz not null default holdfast.ledger_now(),
  primary key (tenant_id, spec_digest)
);
create trigger job_specs_keep before update on holdfast.job_specs
  for each row execute function holdfast.keep_columns('tenant_id', 'spec_digest', 'spec', 'created_at');

create table holdfast.jobs (
  tenant_id text not null,
  job_id uuid not null,
  name text not null constraint jobs_name check (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
  spec_digest text not null,
  state text not null default 'queued'
    constraint jobs_state check (state in ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
  priority smallint not null default 2 constraint jobs_priority check (priority between 0 and 3),
  labels jsonb not null default '{}' constraint jobs_labels check (jsonb_typeof(labels) = 'object' and pg_column_size(labels) <= 16384),
  resource_version bigint not null default 1,
  created_at timestamptz not null default holdfast.ledger_now(),
  queued_at timestamptz not null default holdfast.ledger_now(),
  cancel_requested_at timestamptz,
  cancel_reason text constraint jobs_cancel_reason check (length(cancel_reason) <= 1000),
  finished_at timestamptz,
  failure_code text constraint jobs_failure_code check (length(failure_code) <= 63),
  failure_message text constraint jobs_failure_message check (length(failure_message) <= 1000),
  claimed_by text,
  claimed_until timestamptz,
  container_id text,
  -- Of the request that submitted it: its sandboxes get it, so that one trace goes through.
  traceparent text default holdfast.current_traceparent() constraint jobs_traceparent check (length(traceparent) = 55),
  primary key (tenant_id, job_id),
  foreign key (tenant_id, spec_digest) references holdfast.job_specs,
  constraint jobs_finished check ((state in ('succeeded', 'failed', 'cancelled')) = (finished_at is not null)),
  constraint jobs_cancel_has_reason check ((cancel_requested_at is null) = (cancel_reason is null)),
  constraint jobs_cancelled_was_asked check (state <> 'cancelled' or cancel_requested_at is not null),
  constraint jobs_success_was_not_cancelled check (state <> 'succeeded' or cancel_requested_at is null)
);
create index jobs_by_age on holdfast.jobs (tenant_id, created_at desc, job_id desc);
create index jobs_waiting on holdfast.jobs (tenant_id, queued_at) where state = 'queued';
create index jobs_claimed on holdfast.jobs (tenant_id, claimed_until) where state = 'running' and claimed_by is not null;
create index jobs_labels on holdfast.jobs using gin (labels jsonb_path_ops);
create trigger jobs_keep before update on holdfast.jobs
  for each row execute function holdfast.keep_columns('tenant_id', 'job_id', 'name', 'spec_digest', 'created_at', 'traceparent');
create trigger jobs_write_once before update on holdfast.jobs
  for each row execute function holdfast.write_once('cancel_requested_at', 'cancel_reason', 'finished_at');
create trigger jobs_transitions before update of state on holdfast.jobs
  for each row execute function holdfast.keep_transitions(
    'queued>running', 'queued>cancelled', 'queued>failed',
    'running>queued', 'running>succeeded', 'running>failed', 'running>cancelled');

create table holdfast.artifacts (
  tenant_id text not null,
  job_id uuid not null,
  name text not null constraint artifacts_name check (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'),
  blob_key text not null constraint artifacts_key check (length(blob_key) between 1 and 512),
  bytes bigint not null constraint artifacts_bytes check (bytes >= 0),
  sha256 text not null constraint artifacts_sha256 check (sha256 ~ '^[0-9a-f]{64}$'),
  media_type text not null constraint artifacts_media_type check (length(media_type) between 1 and 127),
  manifest jsonb not null constraint artifacts_manifest check (jsonb_typeof(manifest) = 'array' and pg_column_size(manifest) <= 2097152),
  published_at timestamptz not null default holdfast.ledger_now(),
  retain_until timestamptz not null,
  removed_at timestamptz,
  primary key (tenant_id, job_id, name),
  foreign key (tenant_id, job_id) references holdfast.jobs,
  constraint artifacts_retained_for_a_time check (retain_until > published_at),
  constraint artifacts_removed_after_retention check (removed_at is null or removed_at >= retain_until)
);
create index artifacts_ending on holdfast.artifacts (retain_until) where removed_at is null;
create trigger artifacts_keep before update on holdfast.artifacts
  for each row execute function holdfast.keep_columns(
    'tenant_id', 'job_id', 'name', 'blob_key', 'bytes', 'sha256', 'media_type', 'manifest', 'published_at', 'retain_until');
create trigger artifacts_removed_once before update on holdfast.artifacts
  for each row execute function holdfast.write_once('removed_at');

alter table holdfast.job_specs enable row level security;
alter table holdfast.job_specs force row level security;
alter table holdfast.jobs enable row level security;
alter table holdfast.jobs force row level security;
alter table holdfast.artifacts enable row level security;
alter table holdfast.artifacts force row level security;
create policy job_specs_tenant on holdfast.job_specs to holdfast_gateway, holdfast_controller, holdfast_operator
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());
create policy jobs_tenant on holdfast.jobs to holdfast_gateway, holdfast_controller, holdfast_operator, holdfast_retention
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());
create policy artifacts_tenant on holdfast.artifacts to holdfast_gateway, holdfast_controller, holdfast_operator, holdfast_retention
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());

grant select, insert on holdfast.job_specs to holdfast_gateway;
grant select on holdfast.job_specs to holdfast_controller, holdfast_operator;
grant select, insert on holdfast.jobs to holdfast_gateway;
grant select on holdfast.jobs to holdfast_controller, holdfast_operator, holdfast_retention;
grant update (priority, labels, resource_version, state, cancel_requested_at, cancel_reason, finished_at) on holdfast.jobs to holdfast_gateway;
grant update (state, resource_version, queued_at, finished_at, failure_code, failure_message, claimed_by, claimed_until, container_id)
  on holdfast.jobs to holdfast_controller;
grant select, insert on holdfast.artifacts to holdfast_controller;
grant select on holdfast.artifacts to holdfast_gateway, holdfast_operator;
grant select, update (removed_at) on holdfast.artifacts to holdfast_retention;
grant update (resource_version) on holdfast.jobs to holdfast_retention;
