-- 0003 Leases: everything that needs attention, now or later, and who has it.
--
-- One narrow, payload-free row for each live thing. due_at says when it may be taken; wake_at is the only
-- indexed time: due_at while nobody holds the row, the end of the lease while somebody does. One index
-- therefore finds new and abandoned rows alike. A row goes when its resource is finished and cleaned, so the
-- table follows the live work and not the history. Partitioned by kind, so that one kind's churn never slows
-- another's takeover.
--
-- The fence is the pair (holder, epoch). Epochs come from one sequence without a cache: a cache would hand
-- out lower numbers later.

create sequence holdfast.lease_epochs as bigint cache 1;

create table holdfast.leases (
  tenant_id text not null,
  kind text not null,
  resource_id uuid not null,
  queue text not null default 'default' constraint leases_queue check (length(queue) between 1 and 63),
  priority smallint not null default 2 constraint leases_priority check (priority between 0 and 3),
  due_at timestamptz not null,
  wake_at timestamptz not null,
  holder uuid,
  epoch bigint not null default 0,
  primary key (tenant_id, kind, resource_id),
  constraint leases_free_wake_when_due check (holder is not null or wake_at = due_at)
) partition by list (kind);

create table holdfast.leases_admission partition of holdfast.leases for values in ('admission');
create table holdfast.leases_execution partition of holdfast.leases for values in ('execution');
create table holdfast.leases_session partition of holdfast.leases for values in ('session');
create table holdfast.leases_activation partition of holdfast.leases for values in ('activation');
create table holdfast.leases_sandbox partition of holdfast.leases for values in ('sandbox');
create table holdfast.leases_work partition of holdfast.leases for values in ('work');
create table holdfast.leases_publication partition of holdfast.leases for values in ('publication');
create table holdfast.leases_retention partition of holdfast.leases for values in ('retention');

-- Hot and small: dead rows at the front of the index are what slows a claim.
do $$
declare
  partition text;
begin
  foreach partition in array array['admission', 'execution', 'session', 'activation', 'sandbox', 'work', 'publication', 'retention'] loop
    execute format('alter table holdfast.leases_%s set (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02,
      autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0)', partition);
    -- A claim walks tenants by a loose scan of the first and takes the first due rows of each. Whether anything of a
    -- queue is due, and when the next one will be, is one row of the second, however many tenants and later rows
    -- there are. Those of Work are by due_at: a claim and a permit move no entry of them, at the price of passing
    -- over the rows that are held.
    execute format('create index leases_%1$s_due on holdfast.leases_%1$s (queue, priority, tenant_id, %2$s, resource_id)',
      partition, case partition when 'work' then 'due_at' else 'wake_at' end);
    execute format('create index leases_%1$s_wake on holdfast.leases_%1$s (queue, %2$s)',
      partition, case partition when 'work' then 'due_at' else 'wake_at' end);
    execute format('alter table holdfast.leases_%s enable row level security', partition);
    execute format('alter table holdfast.leases_%s force row level security', partition);
  end loop;
end
$$;

create function holdfast.keep_epoch() returns trigger
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
begin
  if new.epoch < old.epoch then
    raise exception using errcode = 'HF002', table = 'leases', column = 'epoch', message = 'a lease''s epoch never goes down';
  end if;
  return new;
end
$$;
create trigger leases_epoch_grows before update of epoch on holdfast.leases
  for each row when (new.epoch < old.epoch) execute function holdfast.keep_epoch();

alter table holdfast.leases enable row level security;
alter table holdfast.leases force row level security;
create policy leases_tenant on holdfast.leases
  to holdfast_gateway, holdfast_controller, holdfast_worker, holdfast_producer, holdfast_operator, holdfast_retention
  using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant());
-- Discovery, claims and renewals run over all tenants and see no payload: there is none here.
create policy leases_dispatcher on holdfast.leases to holdfast_dispatcher using (true) with check (true);

grant select, insert, update, delete on holdfast.leases to
  holdfast_gateway, holdfast_controller, holdfast_worker, holdfast_operator, holdfast_retention;
grant insert on holdfast.leases to holdfast_producer;
grant select, update (holder, epoch, wake_at) on holdfast.leases to holdfast_dispatcher;
grant usage on sequence holdfast.lease_epochs to
  holdfast_dispatcher, holdfast_controller, holdfast_worker, holdfast_retention;
-- An outside object with an epoch that this store has not given yet tells that the store was restored.
grant select on sequence holdfast.lease_epochs to holdfast_dispatcher;

-- Locks the lease until commit and refuses anybody but its present holder, on a clock sample taken after the
-- lock. Every write that acts under a lease calls this first (E6).
create function holdfast.assert_fence(p_kind text, p_resource uuid, p_holder uuid, p_epoch bigint) returns void
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
declare
  lease holdfast.leases;
begin
  select * into lease from holdfast.leases l
  where l.tenant_id = holdfast.current_tenant() and l.kind = p_kind and l.resource_id = p_resource
  for no key update;
  if not found then
    raise exception using errcode = 'HF001', message = format('%s %s has no lease', p_kind, p_resource);
  elsif lease.holder is distinct from p_holder or lease.epoch <> p_epoch then
    raise exception using errcode = 'HF001', message = format('the lease on %s %s was superseded', p_kind, p_resource);
  elsif lease.wake_at <= holdfast.ledger_now() then
    raise exception using errcode = 'HF001', message = format('the lease on %s %s has expired', p_kind, p_resource);
  end if;
end
$$;
grant execute on function holdfast.assert_fence(text, uuid, uuid, bigint) to
  holdfast_controller, holdfast_worker, holdfast_retention;
