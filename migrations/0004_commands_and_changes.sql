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
grant select (tenant_id, change_id, position, kind, root_id, at), update (position) on holdfast.resource_changes to holdfast_dispatcher;
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

-- What lies below the floor is gone for every reader, whosever it was, and may go from the disk.
create policy resource_changes_below_floor on holdfast.resource_changes for delete to holdfast_retention
  using (position <= (select c.floor from holdfast.change_counter c));
create policy resource_changes_seen_below_floor on holdfast.resource_changes for select to holdfast_retention
  using (position <= (select c.floor from holdfast.change_counter c));

-- Positions for up to batch committed changes, oldest first. Null: another one is stamping. The lock is held until the
-- commit, and each statement here sees what was committed when it began: the rows are read after the lock.
create function holdfast.stamp_changes(p_deployment bigint, batch integer) returns bigint
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
declare
  base bigint;
  stamped bigint;
begin
  perform holdfast.assert_deployment(p_deployment);
  if not pg_try_advisory_xact_lock(7146290582) then
    return null;
  end if;
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
grant execute on function holdfast.stamp_changes(bigint, integer) to holdfast_dispatcher;

-- What must be told to somebody outside, written where it became true. Rows of one session for one destination form
-- a line, in the order of their ordinals: a lease of kind 'publication' with the row's id makes the first pending one
-- due, and the next one gets it when that one is delivered or dead. The inbox is a destination that clients read;
-- what is for it is there with its row.
create table holdfast.publication_outbox (
  tenant_id text not null,
  publication_id uuid not null,
  source_kind text not null,
  source_id uuid not null,
  session_id uuid not null,
  ordinal bigint not null,
  destination text not null constraint publication_outbox_destination check (length(destination) between 1 and 255),
  payload jsonb not null constraint publication_outbox_bound check (pg_column_size(payload) <= 1048576),
  created_at timestamptz not null default holdfast.ledger_now(),
  resource_version bigint not null default 1,
  state text not null default 'pending' constraint publication_outbox_state check (state in ('pending', 'delivered', 'dead')),
  -- Counted when a try begins, so that one that ends its process is counted too.
  tries integer not null default 0 constraint publication_outbox_tries check (tries between 0 and 1000),
  tried_at timestamptz,
  last_error text constraint publication_outbox_error check (length(last_error) <= 1000),
  -- What the destination answered last, when it did.
  last_status smallint constraint publication_outbox_status check (last_status between 100 and 999),
  settled_at timestamptz,
  primary key (tenant_id, publication_id),
  constraint publication_outbox_once unique (tenant_id, source_kind, source_id, destination),
  constraint publication_outbox_settled check ((state = 'pending') = (settled_at is null)),
  constraint publication_outbox_inbox check (destination <> 'inbox' or state = 'delivered')
);
create index publication_outbox_line on holdfast.publication_outbox (tenant_id, session_id, destination, ordinal)
  where state = 'pending';
create index publication_outbox_by_age on holdfast.publication_outbox (tenant_id, created_at desc, publication_id desc);
create index publication_outbox_of_session on holdfast.publication_outbox
  (tenant_id, session_id, created_at desc, publication_id desc);
create index publication_outbox_settled on holdfast.publication_outbox (settled_at) where state <> 'pending';
create index publication_outbox_dead on holdfast.publication_outbox (tenant_id, created_at desc, publication_id desc)
  where state = 'dead';
create trigger publication_outbox_keep before update on holdfast.publication_outbox
  for each row execute function holdfast.keep_columns(
    'tenant_id', 'publication_id', 'source_kind', 'source_id', 'session_id', 'ordinal', 'destination', 'payload',
    'created_at');
create trigger publication_outbox_transitions before update of state on holdfast.publication_outbox
  for each row execute function holdfast.keep_transitions('pending>delivered', 'pending>dead', 'dead>pending');

alter table holdfast.publication_outbox enable row level security;
alter table holdfast.publication_outbox force row level security;
create policy publication_outbox_tenant on holdfast.publication_outbox
  to holdfast_gateway, holdfast_controller, holdfast_operator
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());
-- What was told long ago, or given up long ago, may go, whosever it was. What is pending never goes.
create policy publication_outbox_expired on holdfast.publication_outbox to holdfast_retention
  using (state <> 'pending' and settled_at < holdfast.ledger_now() - interval '7 days');
grant select, insert on holdfast.publication_outbox to holdfast_gateway, holdfast_controller;
grant update (state, tries, tried_at, last_error, last_status, settled_at, resource_version) on holdfast.publication_outbox
  to holdfast_controller, holdfast_gateway;
grant select on holdfast.publication_outbox to holdfast_operator;
grant select (tenant_id, publication_id, state, settled_at), delete on holdfast.publication_outbox to holdfast_retention;

-- Who changes what is pending in a line takes this first, so that nobody decides on what another is changing.
create function holdfast.lock_line(p_session uuid, p_destination text) returns void
  language sql volatile security invoker set search_path = pg_catalog, pg_temp as $$
  select pg_advisory_xact_lock(
    hashtextextended(concat_ws('/', 'publication', holdfast.current_tenant(), p_session, p_destination), 0));
$$;

-- The first pending row of a line becomes due, unless one of the line is. Called by whoever changed the line.
create function holdfast.advance_line(p_session uuid, p_destination text) returns void
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
declare
  instant timestamptz;
begin
  perform holdfast.lock_line(p_session, p_destination);
  instant := holdfast.ledger_now();
  insert into holdfast.leases (tenant_id, kind, resource_id, due_at, wake_at)
  select o.tenant_id, 'publication', o.publication_id, instant, instant
  from holdfast.publication_outbox o
  where o.tenant_id = holdfast.current_tenant() and o.session_id = p_session and o.destination = p_destination
    and o.state = 'pending' and not exists (
      select from holdfast.publication_outbox p
      join holdfast.leases l on l.tenant_id = p.tenant_id and l.kind = 'publication' and l.resource_id = p.publication_id
      where p.tenant_id = o.tenant_id and p.session_id = p_session and p.destination = p_destination and p.state = 'pending')
  order by o.ordinal, o.publication_id limit 1;
end
$$;

-- Something must be told to a destination: once by (source, destination), null when it was written before (S8).
-- Part of the transition in which it became true.
create function holdfast.publish(
  p_source_kind text, p_source uuid, p_session uuid, p_ordinal bigint, p_destination text, p_payload jsonb
) returns uuid
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
declare
  outside constant boolean := p_destination <> 'inbox';
  written holdfast.publication_outbox;
begin
  insert into holdfast.publication_outbox
    (tenant_id, publication_id, source_kind, source_id, session_id, ordinal, destination, payload, state, settled_at)
  values (holdfast.current_tenant(), gen_random_uuid(), p_source_kind, p_source, p_session, p_ordinal, p_destination,
    p_payload, case when outside then 'pending' else 'delivered' end, case when not outside then holdfast.ledger_now() end)
  on conflict on constraint publication_outbox_once do nothing
  returning * into written;
  if written.publication_id is null then
    return null;
  end if;
  insert into holdfast.resource_changes (tenant_id, kind, resource_id, root_id, resource_version, operation, body)
  values (written.tenant_id, 'delivery', written.publication_id, p_session, 1, 'delivery.created',
    jsonb_build_object('session_id', p_session, 'destination', p_destination, 'state', written.state));
  if outside then
    perform holdfast.advance_line(p_session, p_destination);
  end if;
  return written.publication_id;
end
$$;
grant execute on function holdfast.lock_line(uuid, text), holdfast.advance_line(uuid, text),
  holdfast.publish(text, uuid, uuid, bigint, text, jsonb) to holdfast_gateway, holdfast_controller;
