-- 0004 Commands, changes, outbox: what was asked, what happened, and what must be told.
--
-- A command row is written in the transaction of the mutation it asks for, so it exists exactly for committed
-- outcomes. Its key is unique by principal: a second first use waits on the index and then finds the stored
-- response. Every transition appends to resource_changes in its own transaction; positions are stamped after
-- commit by whoever holds the sequencer's lock, so a reader at position p has seen everything up to p.

create table holdfast.commands (
  tenant_id text not null,
  command_id uuid not null,
  principal_id uuid not null,
  idempotency_key text constraint commands_key check (idempotency_key ~ '^[\x21-\x7e]{1,255}$'),
  operation text not null,
  target text not null,
  fingerprint bytea not null constraint commands_fingerprint check (octet_length(fingerprint) = 32),
  request_id text constraint commands_request_id check (length(request_id) <= 128),
  traceparent text default holdfast.current_traceparent() constraint commands_traceparent check (length(traceparent) = 55),
  created_at timestamptz not null default holdfast.ledger_now(),
  response_status smallint constraint commands_committed_only check (response_status between 200 and 299),
  response_body jsonb constraint commands_response_bound check (pg_column_size(response_body) <= 65536),
  response_etag text,
  primary key (tenant_id, command_id),
  constraint commands_key_taken unique (tenant_id, principal_id, idempotency_key),
  foreign key (tenant_id, principal_id) references holdfast.principals
);
create trigger commands_keep before update on holdfast.commands
  for each row execute function holdfast.keep_columns(
    'tenant_id', 'command_id', 'principal_id', 'idempotency_key', 'operation', 'target', 'fingerprint', 'request_id',
    'traceparent', 'created_at');
create trigger commands_answered_once before update on holdfast.commands
  for each row execute function holdfast.write_once('response_status', 'response_body', 'response_etag');
create index commands_by_age on holdfast.commands (tenant_id, created_at desc, command_id desc);
-- For the sweep over all tenants. Rows come in the order of their time, so a summary of pages finds the old ones.
create index commands_age on holdfast.commands using brin (created_at);

alter table holdfast.commands enable row level security;
alter table holdfast.commands force row level security;
create policy commands_tenant on holdfast.commands to holdfast_gateway, holdfast_operator
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());
-- A key is kept for 30 days at least, whatever a process believes: the sweep can't see a younger row.
create policy commands_expired on holdfast.commands to holdfast_retention
  using (created_at < holdfast.ledger_now() - interval '30 days');
grant select, insert, update (response_status, response_body, response_etag) on holdfast.commands to holdfast_gateway, holdfast_operator;
grant select (tenant_id, command_id, created_at), delete on holdfast.commands to holdfast_retention;

-- No cache: a cached id would sort an older change behind a newer one of the same resource.
create sequence holdfast.change_ids as bigint cache 1;

create table holdfast.resource_changes (
  tenant_id text not null,
  change_id bigint not null default nextval('holdfast.change_ids'),
  position bigint,
  kind text not null constraint resource_changes_kind check (length(kind) between 1 and 63),
  resource_id uuid not null,
  -- The resource that a person would look at: an attempt's changes belong to its job.
  root_id uuid not null,
  resource_version bigint not null,
  operation text not null constraint resource_changes_operation check (length(operation) between 1 and 63),
  at timestamptz not null default holdfast.ledger_now(),
  traceparent text default holdfast.current_traceparent() constraint resource_changes_traceparent check (length(traceparent) = 55),
  body jsonb not null constraint resource_changes_bound check (pg_column_size(body) <= 32768),
  primary key (tenant_id, change_id),
  constraint resource_changes_version unique (tenant_id, kind, resource_id, resource_version)
);
create index resource_changes_unstamped on holdfast.resource_changes (change_id) where position is null;
create index resource_changes_position on holdfast.resource_changes (position) where position is not null;
create index resource_changes_tenant_position on holdfast.resource_changes (tenant_id, position) where position is not null;
-- Stamping sets the position alone and fires neither of these: thousands of rows a second pass through it.
create trigger resource_changes_keep
  before update of tenant_id, change_id, kind, resource_id, root_id, resource_version, operation, at, traceparent, body
  on holdfast.resource_changes
  for each row execute function holdfast.keep_columns(
    'tenant_id', 'change_id', 'kind', 'resource_id', 'root_id', 'resource_version', 'operation', 'at',
    'traceparent', 'body');
create trigger resource_changes_stamped_once before update of position on holdfast.resource_changes
  for each row when (old.position is not null) execute function holdfast.write_once('position');

alter table holdfast.resource_changes enable row level security;
alter table holdfast.resource_changes force row level security;
create policy resource_changes_tenant on holdfast.resource_changes
  to holdfast_gateway, holdfast_controller, holdfast_worker, holdfast_producer, holdfast_operator, holdfast_retention
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());
-- The sequencer stamps positions and the reader follows them, over all tenants. Column grants keep bodies out.
create policy resource_changes_dispatcher on holdfast.resource_changes to holdfast_dispatcher using (true) with check (true);
grant select, insert on holdfast.resource_changes to holdfast_gateway, holdfast_controller, holdfast_operator, holdfast_worker;
grant insert on holdfast.resource_changes to holdfast_producer;
grant select, insert, delete on holdfast.resource_changes to holdfast_retention;
grant select (tenant_id, change_id, position, kind, root_id), update (position) on holdfast.resource_changes to holdfast_dispatcher;
grant usage on sequence holdfast.change_ids to
  holdfast_gateway, holdfast_controller, holdfast_worker, holdfast_producer, holdfast_operator, holdfast_retention;

-- The next position, and the floor below which changes may have been removed.
create table holdfast.change_counter (
  singleton boolean primary key default true constraint change_counter_is_one_row check (singleton),
  position bigint not null default 0,
  floor bigint not null default 0,
  constraint change_counter_floor check (floor between 0 and position)
);
insert into holdfast.change_counter default values;
grant select on holdfast.change_counter to holdfast_gateway, holdfast_controller, holdfast_operator, holdfast_dispatcher, holdfast_retention;
grant update (position) on holdfast.change_counter to holdfast_dispatcher;
grant update (floor) on holdfast.change_counter to holdfast_retention;

-- Positions for up to batch committed changes, oldest first. Its caller takes the sequencer's advisory lock in
-- a statement of its own before: the snapshot that reads the rows must be younger than the lock.
create function holdfast.stamp_changes(batch integer) returns bigint
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
declare
  base bigint;
  stamped bigint;
begin
  select c.position into strict base from holdfast.change_counter c for update;
  with next as (
    select r.tenant_id, r.change_id, row_number() over (order by r.change_id) as n
    from (
      select u.tenant_id, u.change_id from holdfast.resource_changes u
      where u.position is null order by u.change_id limit batch
    ) r
  ), done as (
    update holdfast.resource_changes r set position = base + next.n
    from next where r.tenant_id = next.tenant_id and r.change_id = next.change_id and r.position is null
    returning 1
  )
  select count(*) into stamped from done;
  if stamped > 0 then
    update holdfast.change_counter set position = base + stamped;
  end if;
  return stamped;
end
$$;
grant execute on function holdfast.stamp_changes(integer) to holdfast_dispatcher;

-- What must be told to somebody outside, written where it became true. A lease of kind 'publication' with the
-- same id makes it due; the row keeps what was delivered.
create table holdfast.publication_outbox (
  tenant_id text not null,
  publication_id uuid not null,
  source_kind text not null,
  source_id uuid not null,
  destination text not null constraint publication_outbox_destination check (length(destination) between 1 and 255),
  payload jsonb not null constraint publication_outbox_bound check (pg_column_size(payload) <= 262144),
  created_at timestamptz not null default holdfast.ledger_now(),
  state text not null default 'pending' constraint publication_outbox_state check (state in ('pending', 'delivered', 'dead')),
  tries integer not null default 0 constraint publication_outbox_tries check (tries between 0 and 1000),
  last_error text constraint publication_outbox_error check (length(last_error) <= 1000),
  settled_at timestamptz,
  primary key (tenant_id, publication_id),
  constraint publication_outbox_once unique (tenant_id, source_kind, source_id, destination),
  constraint publication_outbox_settled check ((state = 'pending') = (settled_at is null))
);
create trigger publication_outbox_keep before update on holdfast.publication_outbox
  for each row execute function holdfast.keep_columns(
    'tenant_id', 'publication_id', 'source_kind', 'source_id', 'destination', 'payload', 'created_at');
create trigger publication_outbox_transitions before update of state on holdfast.publication_outbox
  for each row execute function holdfast.keep_transitions('pending>delivered', 'pending>dead', 'dead>pending');

alter table holdfast.publication_outbox enable row level security;
alter table holdfast.publication_outbox force row level security;
create policy publication_outbox_tenant on holdfast.publication_outbox
  to holdfast_gateway, holdfast_controller, holdfast_operator, holdfast_retention
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());
grant select, insert on holdfast.publication_outbox to holdfast_gateway, holdfast_controller;
grant update (state, tries, last_error, settled_at) on holdfast.publication_outbox to holdfast_controller, holdfast_operator;
grant select on holdfast.publication_outbox to holdfast_operator;
grant select, delete on holdfast.publication_outbox to holdfast_retention;
