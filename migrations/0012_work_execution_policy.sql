-- 0012 Work under an execution policy: attempt plans, absolute deadlines, and what runs them.
--
-- Adds nullable columns and checks, so every older row stays byte for byte as it was and means what it meant: legacy
-- Work has no timing fact at all. Opted-in Work says so (execution_policy_schema). With A the acceptance, O the
-- offsets, C the circuit window, M the longest elapsed time and D the deadline, attempt i is eligible at A+O[i]; a new
-- attempt is admitted while due <= now < cutoff, the cutoff being the earliest of A+C, A+M and D. An accepted deadline
-- is never extended: no statement here writes one twice, and no role may.
--
-- Then come the functions of the hot path: one network exchange each, run with the caller's own rights.
--
-- A process that knows nothing of a deadline would run past it. So both floors rise to 12, and this refuses to apply
-- while an older process is alive or an item is in somebody's hands: stop them, let them drain, apply.
--
-- Drain first: work

do $drain$
declare
  alive text;
  held bigint;
begin
  -- Forced row-level security would blind the owner; the lock that this takes also keeps claims out until the commit.
  alter table holdfast.leases_work no force row level security;
  select string_agg(i.process || ' ' || i.release, ', ' order by i.started_at) into alive
  from holdfast.incarnations i
  where i.ended_at is null and i.schema_maximum < 12 and i.seen_at > holdfast.work_execution_now() - interval '2 minutes';
  if alive is not null then
    raise exception using errcode = '55000', message = 'older processes are alive: ' || alive,
      hint = 'Stop every process that does not understand schema 12, then apply again.';
  end if;
  select count(*) into held from holdfast.leases_work l
  where l.holder is not null and (l.work_state in ('permitted', 'cancel_pending') or l.wake_at > holdfast.work_execution_now());
  if held > 0 then
    raise exception using errcode = '55000', message = format('%s items of work are held', held),
      hint = 'Let the workers finish or give back what they have, then apply again.';
  end if;
  alter table holdfast.leases_work force row level security;
end
$drain$;

-- 1 to 256 offsets from acceptance in microseconds: the first is 0, each later than the one before.
create function holdfast.is_attempt_plan(offsets bigint[]) returns boolean
  language plpgsql immutable strict security invoker parallel safe set search_path = pg_catalog, pg_temp as $$
declare
  place integer;
begin
  if array_ndims(offsets) <> 1 or array_lower(offsets, 1) <> 1 or cardinality(offsets) not between 1 and 256
     or offsets[1] is distinct from 0 then
    return false;
  end if;
  for place in 2 .. cardinality(offsets) loop
    if offsets[place] is null or offsets[place] <= offsets[place - 1] then
      return false;
    end if;
  end loop;
  return true;
end
$$;

alter table holdfast.work_versions
  add column execution_policy_schema text,
  add column attempt_plan_version text,
  add column attempt_plan_offsets bigint[],
  add column maximum_circuit_microseconds bigint,
  add constraint work_versions_policy_schema check (execution_policy_schema = 'work-execution-v1'),
  add constraint work_versions_legacy_has_no_plan check (execution_policy_schema is not null or attempt_plan_version is null),
  add constraint work_versions_plan_is_whole check (
    (attempt_plan_version is null) = (attempt_plan_offsets is null) and (attempt_plan_version is null) = (maximum_circuit_microseconds is null)),
  add constraint work_versions_plan_version check (length(attempt_plan_version) between 1 and 100),
  add constraint work_versions_plan_offsets check (holdfast.is_attempt_plan(attempt_plan_offsets)),
  add constraint work_versions_plan_circuit check (maximum_circuit_microseconds > attempt_plan_offsets[cardinality(attempt_plan_offsets)]),
  add constraint work_versions_plan_attempts check (attempts_max = cardinality(attempt_plan_offsets)),
  add constraint work_versions_plan_elapsed check (elapsed_max_microseconds >= maximum_circuit_microseconds);
create trigger work_versions_keep_policy before update on holdfast.work_versions
  for each row execute function holdfast.keep_columns(
    'execution_policy_schema', 'attempt_plan_version', 'attempt_plan_offsets', 'maximum_circuit_microseconds');

alter table holdfast.work_items
  add column execution_policy_schema text,
  add column attempt_plan_version text,
  add column attempt_plan_offsets bigint[],
  add column maximum_circuit_microseconds bigint,
  add column execution_not_after timestamptz,
  -- The first look at or after the deadline, and the first closure of admission with its reason. Each is written once.
  add column execution_deadline_reached_at timestamptz,
  add column execution_admission_closed_at timestamptz,
  add column execution_admission_closed_reason text,
  -- The lane that its lease waits in: where a worker finds it, without a look at the payload. It decides nothing.
  add column discovery_hint text,
  add constraint work_items_policy_schema check (execution_policy_schema = 'work-execution-v1'),
  add constraint work_items_legacy_has_no_timing check (execution_policy_schema is not null or (
    attempt_plan_version is null and attempt_plan_offsets is null and maximum_circuit_microseconds is null
    and execution_not_after is null and execution_deadline_reached_at is null
    and execution_admission_closed_at is null and execution_admission_closed_reason is null)),
  add constraint work_items_plan_is_whole check (
    (attempt_plan_version is null) = (attempt_plan_offsets is null) and (attempt_plan_version is null) = (maximum_circuit_microseconds is null)),
  add constraint work_items_plan_or_deadline check (
    execution_policy_schema is null or attempt_plan_version is not null or execution_not_after is not null),
  add constraint work_items_plan_version check (length(attempt_plan_version) between 1 and 100),
  add constraint work_items_plan_offsets check (holdfast.is_attempt_plan(attempt_plan_offsets)),
  add constraint work_items_plan_circuit check (maximum_circuit_microseconds > attempt_plan_offsets[cardinality(attempt_plan_offsets)]),
  add constraint work_items_plan_attempts check (attempts_max = cardinality(attempt_plan_offsets)),
  add constraint work_items_plan_elapsed check (elapsed_max_microseconds >= maximum_circuit_microseconds),
  add constraint work_items_deadline_reached check (execution_deadline_reached_at is null or execution_deadline_reached_at >= execution_not_after),
  add constraint work_items_deadline_was_one check (execution_deadline_reached_at is null or execution_not_after is not null),
  add constraint work_items_admission_closed check ((execution_admission_closed_at is null) = (execution_admission_closed_reason is null)),
  add constraint work_items_closed_reason check (
    execution_admission_closed_reason in ('deadline_elapsed', 'circuit_elapsed', 'slots_exhausted', 'elapsed_exhausted')),
  add constraint work_items_hint check (length(discovery_hint) between 1 and 63);
create trigger work_items_keep_policy before update on holdfast.work_items
  for each row execute function holdfast.keep_columns(
    'execution_policy_schema', 'attempt_plan_version', 'attempt_plan_offsets', 'maximum_circuit_microseconds',
    'execution_not_after', 'discovery_hint');
create trigger work_items_observed_once before update on holdfast.work_items
  for each row execute function holdfast.write_once(
    'execution_deadline_reached_at', 'execution_admission_closed_at', 'execution_admission_closed_reason');
grant update (execution_deadline_reached_at, execution_admission_closed_at, execution_admission_closed_reason)
  on holdfast.work_items to holdfast_worker, holdfast_operator;

-- When user code was let in: the permit's own instant.
alter table holdfast.leases add column permit_admitted_at timestamptz;
alter table holdfast.work_attempts add column permit_admitted_at timestamptz;
alter table holdfast.work_history add column permit_admitted_at timestamptz;
-- By which policy of retention a quarantined observation is kept. One without is kept.
alter table holdfast.work_observations
  add column retention_policy text constraint work_observations_retention_policy check (length(retention_policy) between 1 and 128);
grant select (retention_policy) on holdfast.work_observations to holdfast_retention;
-- Whatever a process believes of a policy, the sweep sees nothing that is younger than a day or has none.
create policy work_observations_expired on holdfast.work_observations to holdfast_retention
  using (retention_policy is not null and observed_at < holdfast.work_execution_now() - interval '1 day');

update holdfast.store set reader_floor = greatest(reader_floor, 12), writer_floor = greatest(writer_floor, 12);

-- The exclusive end of admission. Null arguments count as never.
create function holdfast.work_cutoff(accepted_at timestamptz, elapsed bigint, circuit bigint, not_after timestamptz) returns timestamptz
  language sql stable security invoker parallel safe
  return least(accepted_at + holdfast.microseconds(elapsed), accepted_at + holdfast.microseconds(circuit), not_after);

-- Why admission is closed now, or null while it is open. Of several the earliest cutoff; on a tie in this order.
create function holdfast.work_closure(w holdfast.work_items, used integer, now timestamptz) returns text
  language plpgsql stable security invoker set search_path = pg_catalog, pg_temp as $$
declare
  cutoff constant timestamptz := holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after);
begin
  if now >= cutoff then
    return case cutoff
      when w.execution_not_after then 'deadline_elapsed'
      when w.accepted_at + holdfast.microseconds(w.maximum_circuit_microseconds) then 'circuit_elapsed'
      else 'elapsed_exhausted' end;
  end if;
  return case when used >= w.attempts_max then 'slots_exhausted' end;
end
$$;

-- When the attempt after `used` ones is eligible, `now` being the decision on the one before; null: there is none. A
-- plan counts from acceptance; what is overdue may follow at once. Otherwise the pause doubles, without chance in it.
create function holdfast.work_next_due(w holdfast.work_items, used integer, now timestamptz) returns timestamptz
  language plpgsql stable security invoker set search_path = pg_catalog, pg_temp as $$
begin
  if used >= w.attempts_max then
    return null;
  elsif w.attempt_plan_offsets is not null then
    return w.accepted_at + holdfast.microseconds(w.attempt_plan_offsets[used + 1]);
  elsif used = 0 then
    return w.due_at;
  elsif w.retry_initial_microseconds > 0
        and (used > 52 or w.retry_initial_microseconds > w.retry_longest_microseconds >> (used - 1)) then
    return now + holdfast.microseconds(w.retry_longest_microseconds);
  end if;
  return now + holdfast.microseconds(w.retry_initial_microseconds << (used - 1));
end
$$;

-- Whether an outcome is unknown that no proof has settled.
create function holdfast.work_is_unknown(p_tenant text, p_work uuid) returns boolean
  language sql stable security invoker
  return exists (
    select from holdfast.work_attempts a
    where a.tenant_id = p_tenant and a.work_id = p_work and a.outcome = 'unknown'
      and not exists (
        select from holdfast.work_proofs p
        where p.tenant_id = a.tenant_id and p.work_id = a.work_id and p.attempt = a.attempt and p.epoch = a.epoch));

create function holdfast.append_work_change(p_tenant text, p_operation text, p_body jsonb) returns void
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
declare
  batch constant uuid := gen_random_uuid();
begin
  insert into holdfast.resource_changes (tenant_id, kind, resource_id, root_id, resource_version, operation, body)
  values (p_tenant, 'work', batch, batch, 1, p_operation, p_body);
end
$$;

-- Accepts items of one version, in the transaction that calls it: it commits and vanishes with them. An identity that
-- is known resolves to its row, whatever has become of it, before anything else is asked; another request under it is
-- a conflict (HF014), and so is one whose two identities are of different rows.
create function holdfast.submit_work(
  p_tenant text, p_deployment bigint, p_name text, p_version text, p_items json, p_traceparent text default null
) returns table (place bigint, work_id uuid, duplicate boolean, accepted_at timestamptz)
  language plpgsql volatile security invoker
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
  set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  before constant text := current_setting('holdfast.tenant', true);
  version holdfast.work_versions;
  instant timestamptz;
  draining constant text := holdfast.draining('work');
  fresh uuid[];
  late boolean;
  item record;
  by_id holdfast.work_items;
  by_key holdfast.work_items;
  total bigint;
begin
  perform set_config('holdfast.tenant', p_tenant, true);
  if p_deployment is not null then
    perform holdfast.assert_deployment(p_deployment);
  end if;
  perform holdfast.assert_tenant_admits();
  select * into version from holdfast.work_versions v where v.name = p_name and v.version = p_version;
  if not found then
    raise exception using errcode = 'HF011', message = format('work %s version %s is not registered', p_name, p_version);
  end if;
  instant := holdfast.work_execution_now();
  total := json_array_length(p_items);
  if version.retired_at is null and draining is null then
    with accepted as (
      insert into holdfast.work_items (tenant_id, work_id, version_number, idempotency_key, fingerprint_schema, fingerprint, input,
        provider_key, circuit_key, queue, priority, accepted_at, due_at, attempts_max, retry_initial_microseconds,
        retry_longest_microseconds, elapsed_max_microseconds, lease_max_microseconds, traceparent, execution_policy_schema,
        attempt_plan_version, attempt_plan_offsets, maximum_circuit_microseconds, execution_not_after, discovery_hint)
      select p_tenant, i.id, version.version_number, i.key, case when version.execution_policy_schema is null then 1 else 2 end,
        decode(i.fingerprint, 'hex'), coalesce(i.input, 'null'),
        case when version.safety = 'provider_keyed' then coalesce(i.provider_key, i.id::text) end, i.circuit_key, coalesce(i.queue, version.queue), coalesce(i.priority, 2), instant,
        instant + holdfast.microseconds(coalesce(i.delay, 0)), version.attempts_max, version.retry_initial_microseconds,
        version.retry_longest_microseconds, version.elapsed_max_microseconds, version.lease_max_microseconds, p_traceparent,
        version.execution_policy_schema, version.attempt_plan_version, version.attempt_plan_offsets,
        version.maximum_circuit_microseconds, i.not_after,
        case when version.execution_policy_schema is not null then version.version_number || '.' || coalesce(i.queue, version.queue) end
      from json_to_recordset(p_items) as i (id uuid, key text, fingerprint text, input jsonb, provider_key text, circuit_key text,
        queue text, priority smallint, delay bigint, not_after timestamptz)
      on conflict do nothing
      returning work_items.work_id, work_items.queue, work_items.priority, work_items.due_at, work_items.execution_not_after
    ), waiting as (
      insert into holdfast.leases_work (tenant_id, kind, resource_id, queue, priority, due_at, wake_at, work_state, attempt)
      select p_tenant, 'work', a.work_id, version.version_number || '.' || a.queue, a.priority, a.due_at, a.due_at, 'pending', 0
      from accepted a
    )
    select array_agg(a.work_id), coalesce(bool_or(a.execution_not_after <= instant), false) into fresh, late from accepted a;
    if late then
      raise exception using errcode = 'HF013', message = 'the deadline has passed already';
    end if;
  end if;
  if fresh is not null then
    perform holdfast.append_work_change(p_tenant, 'work.accepted',
      jsonb_build_object('name', p_name, 'version', p_version, 'items', to_jsonb(fresh)));
  end if;
  if coalesce(cardinality(fresh), 0) = total then
    perform set_config('holdfast.tenant', coalesce(before, ''), true);
    return query select i.n, (i.item ->> 'id')::uuid, false, instant from json_array_elements(p_items) with ordinality as i (item, n);
    return;
  end if;
  for item in
    select i.*, row_number() over () as n from json_to_recordset(p_items) as i (id uuid, key text, fingerprint text)
  loop
    if item.id = any (fresh) then
      fresh := array_remove(fresh, item.id);
      place := item.n; work_id := item.id; duplicate := false; accepted_at := instant;
      return next;
      continue;
    end if;
    select * into by_id from holdfast.work_items w where w.tenant_id = p_tenant and w.work_id = item.id;
    select * into by_key from holdfast.work_items w where w.tenant_id = p_tenant and w.idempotency_key = item.key;
    if by_id.work_id is null and by_key.work_id is null and draining is not null then
      raise exception using errcode = 'HF017', message = format('no new work is admitted: %s', draining);
    elsif by_id.work_id is null and by_key.work_id is null then
      raise exception using errcode = 'HF012', message = format('work %s version %s is retired', p_name, p_version);
    elsif by_id.work_id <> by_key.work_id then
      raise exception using errcode = 'HF014', message = format('item %s: its command id and its key belong to different work', item.n);
    end if;
    if by_id.work_id is null then
      by_id := by_key;
    end if;
    if by_id.fingerprint <> decode(item.fingerprint, 'hex') then
      raise exception using errcode = 'HF014', message = format('item %s: its identity belongs to another request', item.n);
    end if;
    place := item.n; work_id := by_id.work_id; duplicate := true; accepted_at := by_id.accepted_at;
    return next;
  end loop;
  perform set_config('holdfast.tenant', coalesce(before, ''), true);
end
$$;

-- Takes up to p_limit due items of the lanes, most urgent first, the tenants sharing what is left of the limit. Items
-- whose lease expired with an open permit are given without being touched (`recover`): what follows for them is
-- decided, durably, by recover_work(). Nothing runs by a claim alone, so this commit need not be waited for: the
-- permit's commit, which is durable, comes after it in the log.
--
-- The answer is JSON: `i`, the items as [tenant, id, lane, epoch, what, place of the row], and `c`, a cursor for each
-- line of which there may be more: turn_work() takes from there, and passes over nothing that is held, or finished
-- while an old snapshot keeps it. What is due before a cursor or in another line is seen by the next claim.
create function holdfast.claim_work(
  p_deployment bigint, p_holder uuid, p_lanes text[], p_limit integer, p_lease bigint
) returns text
  language plpgsql volatile security invoker
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off
  set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  now timestamptz;
  answer text;
begin
  perform holdfast.assert_deployment(p_deployment);
  perform set_config('synchronous_commit', 'off', true);
  now := holdfast.work_execution_now();
  with recursive line (priority, lane, tenant_id) as (
    -- Comparisons of whole rows: only the index that has this order can answer them.
    select u.priority, w.lane, (
      select case when f.queue = w.lane and f.priority = u.priority then f.tenant_id end
      from (
        select l.queue, l.priority, l.tenant_id from holdfast.leases_work l
        where (l.queue, l.priority, l.tenant_id) > (w.lane, u.priority, '')
        order by l.queue, l.priority, l.tenant_id limit 1
      ) f)
    from (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) as u (priority) cross join unnest(p_lanes) as w (lane)
    union all
    select n.priority, n.lane, (
      select case when f.queue = n.lane and f.priority = n.priority then f.tenant_id end
      from (
        select l.queue, l.priority, l.tenant_id from holdfast.leases_work l
        where (l.queue, l.priority, l.tenant_id) > (n.lane, n.priority, n.tenant_id)
        order by l.queue, l.priority, l.tenant_id limit 1
      ) f)
    from line n where n.tenant_id is not null
  ), due as (
    select d.*, (p_limit + d.lines - 1) / d.lines as share
    from (
      select n.priority, n.lane, n.tenant_id, oldest.due_at, count(*) over (partition by n.priority) as lines
      from line n
      cross join lateral (
        select l.due_at from holdfast.leases_work l
        where (l.queue, l.priority, l.tenant_id, l.due_at) >= (n.lane, n.priority, n.tenant_id, '-infinity')
          and (l.queue, l.priority, l.tenant_id, l.due_at) <= (n.lane, n.priority, n.tenant_id, now)
          and (l.holder is null or l.wake_at <= now)
        order by l.queue, l.priority, l.tenant_id, l.due_at limit 1
      ) oldest
      where n.tenant_id is not null
    ) d
    order by d.priority, d.due_at, d.tenant_id
  ), taken as materialized (
    select t.*, d.share, row_number() over () as n
    from due d
    cross join lateral (
      select l.ctid as row, l.tenant_id, l.resource_id, l.queue, l.priority, l.due_at, l.epoch, l.work_state from holdfast.leases_work l
      where (l.queue, l.priority, l.tenant_id, l.due_at) >= (d.lane, d.priority, d.tenant_id, d.due_at)
        and (l.queue, l.priority, l.tenant_id, l.due_at) <= (d.lane, d.priority, d.tenant_id, now)
        and (l.holder is null or l.wake_at <= now) and l.work_state is not null
      order by l.queue, l.priority, l.tenant_id, l.due_at, l.resource_id
      limit d.share
      for update skip locked
    ) t
    limit p_limit
  ), claimed as (
    update holdfast.leases_work l
    set holder = p_holder, epoch = nextval('holdfast.lease_epochs'), wake_at = now + holdfast.microseconds(p_lease),
      work_state = case when l.work_state = 'reconciling' then 'reconciling' else 'leased' end
    from taken t
    where l.ctid = t.row and l.work_state in ('pending', 'retry_wait', 'leased', 'reconciling')
    returning l.tenant_id, l.resource_id, l.queue, l.epoch, case when l.work_state = 'reconciling' then 'reconcile' else 'claimed' end as what, l.ctid as row
  ), cursors as (
    -- Many lines have few rows each: nothing is passed over there.
    select t.queue, t.priority, t.tenant_id, t.due_at, t.resource_id
    from (select max(k.n) as n from taken k group by k.queue, k.priority, k.tenant_id, k.share having count(*) = k.share) f
    join taken t on t.n = f.n
    where (select count(*) from due) <= 16
  )
  select '{"i":[' || coalesce((
      select string_agg('["' || i.tenant_id || '","' || i.resource_id || '","' || i.queue || '",' || i.epoch || ',"' || i.what || '","' || i.row::text || '"]', ',')
      from (
        select * from claimed
        union all
        select t.tenant_id, t.resource_id, t.queue, t.epoch, 'recover', t.row from taken t where t.work_state in ('permitted', 'cancel_pending')
      ) i), '') || '],"c":'
    || coalesce((select json_agg(json_build_array(c.queue, c.priority, c.tenant_id, c.due_at::text, c.resource_id)) from cursors c), '[]')::text || '}'
  into answer;
  return answer;
end
$$;
grant execute on function
  holdfast.claim_work(bigint, uuid, text[], integer, bigint) to holdfast_dispatcher;

-- Takes an item out of its line until somebody puts it back.
create function holdfast.suspend_item(p_tenant text, p_work uuid, p_reason text, p_by text, now timestamptz) returns void
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
begin
  -- Further away than any look: infinity is no instant.
  update holdfast.leases_work l
  set work_state = 'suspended', holder = null, due_at = '9999-12-31T00:00:00Z', wake_at = '9999-12-31T00:00:00Z', renew_until = null, permit_admitted_at = null
  where l.tenant_id = p_tenant and l.kind = 'work' and l.resource_id = p_work;
  -- One that is out of its line already stays as it is. Two of one instant are told apart by a microsecond.
  insert into holdfast.work_suspensions (tenant_id, work_id, suspended_at, reason, suspended_by)
  values (p_tenant, p_work, greatest(now, (
    select max(s.suspended_at) + interval '1 microsecond' from holdfast.work_suspensions s
    where s.tenant_id = p_tenant and s.work_id = p_work)), p_reason, p_by) on conflict do nothing;
end
$$;

-- Puts an item back, to be due at an instant.
create function holdfast.rest_item(p_tenant text, p_work uuid, p_attempt integer, p_due timestamptz) returns void
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
begin
  update holdfast.leases_work l
  set work_state = case when p_attempt = 0 then 'pending' else 'retry_wait' end, attempt = p_attempt, holder = null,
    due_at = p_due, wake_at = p_due, renew_until = null, permit_admitted_at = null
  where l.tenant_id = p_tenant and l.kind = 'work' and l.resource_id = p_work;
end
$$;

create function holdfast.finish_item(
  l holdfast.leases_work, p_state text, p_holder uuid, p_epoch bigint, p_admitted timestamptz, p_result jsonb,
  p_code text, p_message text, now timestamptz
) returns void
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
begin
  delete from holdfast.leases_work d where d.tenant_id = l.tenant_id and d.kind = 'work' and d.resource_id = l.resource_id;
  insert into holdfast.work_history (tenant_id, work_id, state, attempts, finished_at, holder, epoch, permit_admitted_at, result, failure_code, failure_message)
  values (l.tenant_id, l.resource_id, p_state, l.attempt, now, p_holder, p_epoch, p_admitted, p_result, p_code, left(p_message, 1000));
  perform holdfast.append_work_change(l.tenant_id, 'work.settled', jsonb_build_object(p_state, jsonb_build_array(l.resource_id)));
end
$$;

-- The observations of W4. Each is kept as it was first made.
create function holdfast.observe_closure(w holdfast.work_items, p_reason text, now timestamptz) returns void
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
begin
  if w.execution_policy_schema is null then
    return;
  end if;
  update holdfast.work_items i
  set execution_deadline_reached_at = coalesce(i.execution_deadline_reached_at, case when now >= i.execution_not_after then now end),
    execution_admission_closed_at = coalesce(i.execution_admission_closed_at, case when p_reason is not null then now end),
    execution_admission_closed_reason = coalesce(i.execution_admission_closed_reason, p_reason)
  where i.tenant_id = w.tenant_id and i.work_id = w.work_id
    and ((i.execution_deadline_reached_at is null and now >= i.execution_not_after)
      or (i.execution_admission_closed_at is null and p_reason is not null));
end
$$;

-- Admission is closed: the item has failed, unless an outcome is unknown. Nothing unknown becomes failed.
create function holdfast.close_item(
  l holdfast.leases_work, w holdfast.work_items, p_reason text, p_holder uuid, p_epoch bigint, p_admitted timestamptz,
  p_code text, p_message text, now timestamptz
) returns text
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
begin
  perform holdfast.observe_closure(w, p_reason, now);
  if holdfast.work_is_unknown(l.tenant_id, l.resource_id) then
    -- No row of history says how this attempt ended.
    if p_holder is not null then
      insert into holdfast.work_attempts (tenant_id, work_id, attempt, holder, epoch, outcome, ended_at, permit_admitted_at, failure_code, failure_message)
      values (l.tenant_id, l.resource_id, l.attempt, p_holder, p_epoch, 'failed', now, p_admitted, p_code, left(p_message, 1000));
    end if;
    perform holdfast.suspend_item(l.tenant_id, l.resource_id, 'outcome_unknown', null, now);
    return 'suspended';
  end if;
  perform holdfast.finish_item(l, 'failed', p_holder, p_epoch, p_admitted, null, p_code, p_message, now);
  return 'closed';
end
$$;

-- What a failure or a success says about what stands behind a circuit breaker.
create function holdfast.note_circuit(p_tenant text, p_key text, p_work uuid, p_failed boolean, p_limit integer, p_probe bigint, now timestamptz) returns void
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
begin
  if not p_failed then
    update holdfast.work_circuits c set failures = 0, opened_at = null, probe_at = null, probing = null, probe_until = null
    where c.tenant_id = p_tenant and c.circuit_key = p_key and (c.failures > 0 or c.opened_at is not null);
    return;
  end if;
  insert into holdfast.work_circuits as c (tenant_id, circuit_key, failures, opened_at, probe_at)
  values (p_tenant, p_key, 1, case when p_limit <= 1 then now end, case when p_limit <= 1 then now + holdfast.microseconds(p_probe) end)
  on conflict (tenant_id, circuit_key) do update
  set failures = c.failures + 1,
    opened_at = case when c.opened_at is not null or c.failures + 1 >= p_limit then now end,
    probe_at = case when c.opened_at is not null or c.failures + 1 >= p_limit then now + holdfast.microseconds(p_probe) end,
    probing = null, probe_until = null;
end
$$;

-- An attempt that failed by its own word, while its lease held.
create function holdfast.fail_work(
  p_tenant text, p_work uuid, p_holder uuid, p_epoch bigint, p_attempt integer, p_code text, p_message text, p_final boolean
) returns text
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  l holdfast.leases_work;
  w holdfast.work_items;
  v holdfast.work_versions;
  now timestamptz;
  due timestamptz;
  closed text;
begin
  select * into l from holdfast.leases_work k
  where k.tenant_id = p_tenant and k.kind = 'work' and k.resource_id = p_work for no key update;
  now := holdfast.work_execution_now();
  if l.holder is distinct from p_holder or l.epoch is distinct from p_epoch or l.attempt is distinct from p_attempt
     or l.work_state not in ('permitted', 'cancel_pending') or l.wake_at <= now then
    return 'unmatched';
  end if;
  select * into strict w from holdfast.work_items i where i.tenant_id = p_tenant and i.work_id = p_work;
  if w.circuit_key is not null then
    select * into strict v from holdfast.work_versions x where x.version_number = w.version_number;
    if v.breaker_failures is not null then
      perform holdfast.note_circuit(p_tenant, w.circuit_key, p_work, true, v.breaker_failures, v.breaker_probe_microseconds, now);
    end if;
  end if;
  closed := holdfast.work_closure(w, l.attempt, now);
  if p_final or l.work_state = 'cancel_pending' or closed is not null then
    return case holdfast.close_item(l, w, closed, p_holder, p_epoch, l.permit_admitted_at, p_code, p_message, now)
      when 'closed' then 'failed' else 'suspended' end;
  end if;
  insert into holdfast.work_attempts (tenant_id, work_id, attempt, holder, epoch, outcome, ended_at, permit_admitted_at, failure_code, failure_message)
  values (p_tenant, p_work, p_attempt, p_holder, p_epoch, 'failed', now, l.permit_admitted_at, p_code, left(p_message, 1000));
  due := holdfast.work_next_due(w, l.attempt, now);
  -- One that would be eligible after the cutoff is looked at then, to be closed.
  perform holdfast.rest_item(p_tenant, p_work, l.attempt,
    least(due, holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after)));
  return 'retry';
end
$$;

-- Gives back what was never started: a claim, or a permit that no user code saw.
create function holdfast.return_work(p_tenant text, p_work uuid, p_holder uuid, p_epoch bigint) returns text
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  l holdfast.leases_work;
  now timestamptz;
begin
  select * into l from holdfast.leases_work k
  where k.tenant_id = p_tenant and k.kind = 'work' and k.resource_id = p_work for no key update;
  now := holdfast.work_execution_now();
  if l.holder is distinct from p_holder or l.epoch is distinct from p_epoch or l.wake_at <= now then
    return 'unmatched';
  end if;
  case l.work_state
    when 'leased' then
      perform holdfast.rest_item(p_tenant, p_work, l.attempt, l.due_at);
    when 'reconciling' then
      update holdfast.leases_work k set holder = null, due_at = now, wake_at = now
      where k.tenant_id = p_tenant and k.kind = 'work' and k.resource_id = p_work;
    when 'permitted' then
      insert into holdfast.work_attempts (tenant_id, work_id, attempt, holder, epoch, outcome, ended_at, permit_admitted_at)
      values (p_tenant, p_work, l.attempt, p_holder, p_epoch, 'returned', now, l.permit_admitted_at);
      perform holdfast.rest_item(p_tenant, p_work, l.attempt - 1, l.due_at);
    when 'cancel_pending' then
      insert into holdfast.work_attempts (tenant_id, work_id, attempt, holder, epoch, outcome, ended_at, permit_admitted_at)
      values (p_tenant, p_work, l.attempt, p_holder, p_epoch, 'returned', now, l.permit_admitted_at);
      l.attempt := l.attempt - 1;
      if holdfast.work_is_unknown(p_tenant, p_work) then
        update holdfast.leases_work k set attempt = l.attempt
        where k.tenant_id = p_tenant and k.kind = 'work' and k.resource_id = p_work;
        perform holdfast.suspend_item(p_tenant, p_work, 'outcome_unknown', null, now);
      else
        perform holdfast.finish_item(l, 'cancelled_before_effect', null, null, null, null, null, null, now);
      end if;
    else
      return 'unmatched';
  end case;
  return 'returned';
end
$$;

-- A claim that the fast path did not permit: why, and what follows. A refusal uses no slot.
create function holdfast.admit_work(p_tenant text, p_work uuid, p_holder uuid, p_epoch bigint, p_disabled boolean) returns text
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  l holdfast.leases_work;
  w holdfast.work_items;
  v holdfast.work_versions;
  c holdfast.work_circuits;
  now timestamptz;
  closed text;
  cutoff timestamptz;
begin
  select * into l from holdfast.leases_work k
  where k.tenant_id = p_tenant and k.kind = 'work' and k.resource_id = p_work for no key update;
  now := holdfast.work_execution_now();
  if l.holder is distinct from p_holder or l.epoch is distinct from p_epoch or l.work_state <> 'leased' or l.wake_at <= now then
    return 'refused';
  end if;
  select * into strict w from holdfast.work_items i where i.tenant_id = p_tenant and i.work_id = p_work;
  if p_disabled then
    perform holdfast.suspend_item(p_tenant, p_work, 'tenant_disabled', null, now);
    return 'suspended';
  end if;
  closed := holdfast.work_closure(w, l.attempt, now);
  if closed is not null then
    return holdfast.close_item(l, w, closed, null, null, null, closed, 'no attempt is admitted any more', now);
  end if;
  cutoff := holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after);
  if l.due_at > now then
    perform holdfast.rest_item(p_tenant, p_work, l.attempt, l.due_at);
    return 'deferred';
  end if;
  select * into strict v from holdfast.work_versions x where x.version_number = w.version_number;
  if w.circuit_key is not null and v.breaker_failures is not null then
    select * into c from holdfast.work_circuits k where k.tenant_id = p_tenant and k.circuit_key = w.circuit_key for no key update;
    now := holdfast.work_execution_now();
    if c.opened_at is not null then
      if now < c.probe_at or (c.probing is not null and c.probing <> p_work and now < c.probe_until) then
        perform holdfast.rest_item(p_tenant, p_work, l.attempt, least(cutoff, greatest(c.probe_at, c.probe_until)));
        return 'deferred';
      end if;
      update holdfast.work_circuits k set probing = p_work, probe_until = l.wake_at
      where k.tenant_id = p_tenant and k.circuit_key = w.circuit_key;
    end if;
    if now >= cutoff then
      return 'refused';
    end if;
  end if;
  update holdfast.leases_work k
  set work_state = 'permitted', attempt = k.attempt + 1, permit_admitted_at = now,
    renew_until = least(now + holdfast.microseconds(w.lease_max_microseconds), w.execution_not_after),
    wake_at = least(k.wake_at, now + holdfast.microseconds(w.lease_max_microseconds), w.execution_not_after)
  where k.tenant_id = p_tenant and k.kind = 'work' and k.resource_id = p_work;
  return 'permitted';
end
$$;

-- The rest of a permit in a turn's answer. Without keys and deadline, which most have not, it is shorter.
create function holdfast.permit_text(
  attempt smallint, to_begin interval, to_expire interval, accepted_at timestamptz, place tid, input jsonb, provider_key text, not_after timestamptz
) returns text
  language sql stable security invoker parallel safe
  return attempt || ',' || floor(date_part('epoch', to_begin) * 1000) || ',' || floor(date_part('epoch', to_expire) * 1000) || ',"' || accepted_at::text || '","'
    || place::text || '",' || input::text || case when provider_key is null and not_after is null then ']'
      else ',' || coalesce(to_json(provider_key)::text, 'null') || ',null,' || coalesce(to_json(not_after::text)::text, 'null') || ']' end;

-- What this holder has permits for in these lines, behind their cursors: a turn's answer was lost. Those that it knows
-- of are left out.
create function holdfast.taken_work(
  p_deployment bigint, p_holder uuid, t_lanes text[], t_priorities smallint[], t_tenants text[], t_dues timestamptz[], t_works uuid[], t_limit integer, p_known bigint[]
) returns table (tenant_id text, work_id uuid, lane text, epoch bigint, attempt smallint, place text)
  language plpgsql volatile security invoker
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  perform holdfast.assert_deployment(p_deployment);
  perform set_config('holdfast.tenants', array_to_string(array(select distinct unnest(t_tenants)), ','), true);
  return query
  select f.tenant_id, f.resource_id, f.queue, f.epoch, f.attempt, f.place
  from unnest(t_lanes, t_priorities, t_tenants, t_dues, t_works) as d (lane, priority, tenant_id, due_at, work_id)
  cross join lateral (
    select l.tenant_id, l.resource_id, l.queue, l.epoch, l.attempt, l.ctid::text as place from holdfast.leases_work l
    where (l.queue, l.priority, l.tenant_id, l.due_at, l.resource_id) > (d.lane, d.priority, d.tenant_id, d.due_at, d.work_id)
      and (l.queue, l.priority, l.tenant_id) <= (d.lane, d.priority, d.tenant_id)
      and l.holder = p_holder and l.work_state in ('permitted', 'cancel_pending') and l.epoch <> all (p_known)
    order by l.queue, l.priority, l.tenant_id, l.due_at, l.resource_id
    limit t_limit
  ) f;
end
$$;

-- One turn of a worker, of any number of tenants: settles what it finished and permits what it will run next. The
-- arrays of each part have an element for each item: s_ what succeeded, o_ what came to something else, n_ what is next;
-- t_ has the cursors of a claim, from which up to t_limit more due items are taken and permitted at once, without being
-- claimed before: their rows are written once less. What needs a second look there, is passed over and left to a claim.
-- s_results and s_circuits are empty when no item has one; an empty text in them stands for none.
--
-- An item's row is looked for at its place, where the claim or the permit left it, and by its key only when it has
-- moved: a renewal or a cancellation writes it anew. Whatever stands at the place, only the holder, the epoch, the
-- attempt, the state and the expiry make it the item. The answer is JSON: `p`, permits as [place in n_, attempt,
-- milliseconds left to begin, milliseconds of the lease, acceptance, place of the row, input, and where they are not
-- null provider key, circuit key and deadline]; `t`, taken ones as [place in t_, id, epoch], then as from the attempt
-- on, and `c`, for lines of which there may be more, [place in t_, due, id] of the last that was seen; `n`, what has no
-- permit as [place in n_, why]; `s`, places in s_ that are not
-- this holder's to settle; `o`, what each of o_ came to. An expiry or a cutoff that passed between the look and the
-- end lets the whole turn be run again (40001).
create function holdfast.turn_work(
  p_deployment bigint, p_holder uuid, p_tenants text[],
  s_rows tid[], s_tenants text[], s_works uuid[], s_epochs bigint[], s_attempts smallint[], s_results text[], s_circuits text[],
  o_tenants text[], o_works uuid[], o_epochs bigint[], o_attempts smallint[], o_outcomes text[], o_codes text[], o_messages text[],
  n_rows tid[], n_tenants text[], n_works uuid[], n_epochs bigint[],
  t_lanes text[], t_priorities smallint[], t_tenants text[], t_dues timestamptz[], t_works uuid[], t_limit integer, p_lease bigint
) returns text
  language plpgsql volatile security invoker
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off
  set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  now timestamptz;
  soonest timestamptz;
  latest timestamptz;
  settled integer[] := '{}';
  missing integer[];
  permitted text;
  taken text;
  seen text;
  places integer[];
  disabled text[];
  passed jsonb := '[]';
  others jsonb := '[]';
  deployment bigint;
  answer text;
  n integer;
begin
  perform set_config('holdfast.tenants', array_to_string(p_tenants, ','), true);
  select s.deployment_epoch, array(select t.tenant_id from holdfast.tenants t where t.tenant_id = any (p_tenants) and t.disabled_at is not null)
  into strict deployment, disabled from holdfast.store s;
  if p_deployment is distinct from deployment then
    perform holdfast.assert_deployment(p_deployment);
  end if;
  now := holdfast.work_execution_now();

  if cardinality(s_works) > 0 then
    with gone as (
      delete from holdfast.leases_work l
      using unnest(s_rows, s_epochs, s_attempts, s_results) with ordinality as d (row, epoch, attempt, result, place)
      where l.ctid = d.row and l.holder = p_holder and l.epoch = d.epoch and l.attempt = d.attempt
        and l.work_state in ('permitted', 'cancel_pending') and l.wake_at > now
      returning d.place, l.tenant_id, l.resource_id, l.attempt, l.epoch, l.permit_admitted_at, l.work_state, l.wake_at, d.result
    ), kept as (
      insert into holdfast.work_history (tenant_id, work_id, state, attempts, finished_at, holder, epoch, permit_admitted_at, result)
      select g.tenant_id, g.resource_id, case g.work_state when 'permitted' then 'succeeded' else 'succeeded_after_cancel_requested' end,
        g.attempt, now, p_holder, g.epoch, g.permit_admitted_at, nullif(g.result, '')::jsonb
      from gone g
    ), told as (
      insert into holdfast.resource_changes (tenant_id, kind, resource_id, root_id, resource_version, operation, body)
      select b.tenant_id, 'work', b.batch, b.batch, 1, 'work.settled', b.body
      from (
        select g.tenant_id, gen_random_uuid() as batch, jsonb_build_object('succeeded', jsonb_agg(g.resource_id)) as body
        from gone g group by g.tenant_id
      ) b
    )
    select coalesce(array_agg(g.place::integer), '{}'), min(g.wake_at) into settled, soonest from gone g;

    if cardinality(settled) < cardinality(s_works) then
      missing := array(select generate_series(1, cardinality(s_works)) except select unnest(settled));
      with mine as materialized (
        select m.place, k.row from unnest(missing) as m (place)
        cross join lateral (
          select l.ctid as row from holdfast.leases_work l
          where l.tenant_id = s_tenants[m.place] and l.kind = 'work' and l.resource_id = s_works[m.place]
            and l.holder = p_holder and l.epoch = s_epochs[m.place] and l.attempt = s_attempts[m.place]
            and l.work_state in ('permitted', 'cancel_pending') and l.wake_at > now
          for update
        ) k
      ), gone as (
        delete from holdfast.leases_work l using mine m
        where l.ctid = m.row
        returning m.place, l.tenant_id, l.resource_id, l.attempt, l.epoch, l.permit_admitted_at, l.work_state, l.wake_at
      ), kept as (
        insert into holdfast.work_history (tenant_id, work_id, state, attempts, finished_at, holder, epoch, permit_admitted_at, result)
        select g.tenant_id, g.resource_id, case g.work_state when 'permitted' then 'succeeded' else 'succeeded_after_cancel_requested' end,
          g.attempt, now, p_holder, g.epoch, g.permit_admitted_at, nullif(s_results[g.place], '')::jsonb
        from gone g
      ), told as (
        insert into holdfast.resource_changes (tenant_id, kind, resource_id, root_id, resource_version, operation, body)
        select b.tenant_id, 'work', b.batch, b.batch, 1, 'work.settled', b.body
        from (
          select g.tenant_id, gen_random_uuid() as batch, jsonb_build_object('succeeded', jsonb_agg(g.resource_id)) as body
          from gone g group by g.tenant_id
        ) b
      )
      select array(select unnest(missing) except select g.place from gone g), (select min(g.wake_at) from gone g) into missing, latest;
      soonest := least(soonest, latest);
    end if;

    for n in 1 .. cardinality(s_circuits) loop
      if s_circuits[n] <> '' and n <> all (coalesce(missing, '{}')) then
        perform holdfast.note_circuit(s_tenants[n], s_circuits[n], s_works[n], false, null, null, now);
      end if;
    end loop;
  end if;

  for n in 1 .. cardinality(o_works) loop
    others := others || to_jsonb(case o_outcomes[n]
      when 'returned' then holdfast.return_work(o_tenants[n], o_works[n], p_holder, o_epochs[n])
      else holdfast.fail_work(o_tenants[n], o_works[n], p_holder, o_epochs[n], o_attempts[n], o_codes[n], o_messages[n], o_outcomes[n] = 'failed_for_good') end);
  end loop;

  if cardinality(n_works) > 0 then
    with given as (
      update holdfast.leases_work l
      set work_state = 'permitted', attempt = l.attempt + 1, permit_admitted_at = now,
        renew_until = least(now + holdfast.microseconds(w.lease_max_microseconds), w.execution_not_after),
        wake_at = least(l.wake_at, now + holdfast.microseconds(w.lease_max_microseconds), w.execution_not_after)
      from unnest(n_rows, n_epochs) with ordinality as u (row, epoch, place), holdfast.work_items w
      where l.ctid = u.row and l.holder = p_holder and l.epoch = u.epoch and l.work_state = 'leased'
        and l.wake_at > now and l.due_at <= now
        and w.tenant_id = l.tenant_id and w.work_id = l.resource_id and w.circuit_key is null and l.attempt < w.attempts_max
        and now < holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after)
        and l.tenant_id <> all (disabled)
      returning u.place, least(l.wake_at, holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after)) as begin_by,
        '[' || u.place || ',' || holdfast.permit_text(l.attempt, least(l.wake_at, holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after)) - now,
          l.wake_at - now, w.accepted_at, l.ctid, w.input, w.provider_key, w.execution_not_after) as answer
    )
    select array_agg(g.place::integer), least(soonest, min(g.begin_by)), string_agg(g.answer, ',')
    into places, soonest, permitted from given g;

    if coalesce(cardinality(places), 0) < cardinality(n_works) then
      for n in select generate_series(1, cardinality(n_works)) except select unnest(places) order by 1 loop
        answer := holdfast.admit_work(n_tenants[n], n_works[n], p_holder, n_epochs[n], n_tenants[n] = any (disabled));
        if answer <> 'permitted' then
          passed := passed || jsonb_build_array(jsonb_build_array(n, answer));
          continue;
        end if;
        select concat_ws(',', permitted, json_build_array(n, l.attempt, floor(date_part('epoch', k.begin_by - now) * 1000), floor(date_part('epoch', l.wake_at - now) * 1000),
            w.accepted_at::text, l.ctid::text, w.input, w.provider_key, w.circuit_key, w.execution_not_after::text)::text),
          least(soonest, k.begin_by)
        into permitted, soonest
        from holdfast.leases_work l
        join holdfast.work_items w on w.tenant_id = l.tenant_id and w.work_id = l.resource_id
        cross join lateral (
          select least(l.wake_at, holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after)) as begin_by
        ) k
        where l.tenant_id = n_tenants[n] and l.kind = 'work' and l.resource_id = n_works[n];
      end loop;
    end if;
  end if;

  if t_limit > 0 then
    with line as (
      select c.*, (t_limit + count(*) over (partition by c.priority) - 1) / count(*) over (partition by c.priority) as share
      from unnest(t_lanes, t_priorities, t_tenants, t_dues, t_works) with ordinality as c (lane, priority, tenant_id, due_at, work_id, place)
    ), free as materialized (
      select f.*, d.place, d.share, row_number() over () as n
      from (select * from line order by line.place) d
      cross join lateral (
        select l.ctid as row, l.tenant_id, l.resource_id, l.due_at from holdfast.leases_work l
        where (l.queue, l.priority, l.tenant_id, l.due_at, l.resource_id) > (d.lane, d.priority, d.tenant_id, d.due_at, d.work_id)
          and (l.queue, l.priority, l.tenant_id, l.due_at) <= (d.lane, d.priority, d.tenant_id, now)
          and l.holder is null and l.work_state in ('pending', 'retry_wait')
        order by l.queue, l.priority, l.tenant_id, l.due_at, l.resource_id
        limit d.share
        for update skip locked
      ) f
      limit t_limit
    ), given as (
      update holdfast.leases_work l
      set work_state = 'permitted', attempt = l.attempt + 1, permit_admitted_at = now, holder = p_holder, epoch = nextval('holdfast.lease_epochs'),
        renew_until = least(now + holdfast.microseconds(w.lease_max_microseconds), w.execution_not_after),
        wake_at = least(now + holdfast.microseconds(least(p_lease, w.lease_max_microseconds)), w.execution_not_after)
      from free f, holdfast.work_items w
      where l.ctid = f.row and w.tenant_id = f.tenant_id and w.work_id = f.resource_id and w.circuit_key is null and l.attempt < w.attempts_max
        and now < holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after)
        and l.tenant_id <> all (disabled)
      returning least(l.wake_at, holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after)) as begin_by,
        '[' || f.place || ',"' || l.resource_id || '",' || l.epoch || ',' || holdfast.permit_text(l.attempt,
          least(l.wake_at, holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after)) - now,
          l.wake_at - now, w.accepted_at, l.ctid, w.input, w.provider_key, w.execution_not_after) as answer
    )
    select string_agg(g.answer, ','), least(soonest, min(g.begin_by)),
      (select json_agg(json_build_array(f.place, f.due_at::text, f.resource_id))
       from (select max(k.n) as n from free k group by k.place, k.share having count(*) = k.share) m join free f on f.n = m.n)
    into taken, soonest, seen from given g;
  end if;

  if soonest <= holdfast.work_execution_now() then
    raise exception using errcode = '40001', message = 'a lease or a cutoff passed during the turn';
  end if;
  return '{"p":[' || coalesce(permitted, '') || '],"t":[' || coalesce(taken, '') || '],"c":' || coalesce(seen, '[]') || ',"n":' || passed || ',"s":' || to_json(coalesce(missing, '{}')) || ',"o":' || others || '}';
end
$$;

-- Leases that expired with an open permit: the lost attempt is appended, its outcome unknown, and the item goes where
-- its declared safety sends it. "No effect" is never concluded from an expiry.
create function holdfast.recover_work(p_deployment bigint, p_tenants text[], p_works uuid[]) returns table (place integer, what text)
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  l holdfast.leases_work;
  w holdfast.work_items;
  how text;
  now timestamptz;
  due timestamptz;
  closed text;
begin
  perform holdfast.assert_deployment(p_deployment);
  perform set_config('holdfast.tenants', array_to_string(array(select distinct unnest(p_tenants)), ','), true);
  for place in 1 .. cardinality(p_works) loop
    select * into l from holdfast.leases_work k
    where k.tenant_id = p_tenants[place] and k.kind = 'work' and k.resource_id = p_works[place] for no key update skip locked;
    now := holdfast.work_execution_now();
    if not found or l.work_state not in ('permitted', 'cancel_pending') or l.wake_at > now then
      what := 'busy';
      return next;
      continue;
    end if;
    select * into strict w from holdfast.work_items i where i.tenant_id = l.tenant_id and i.work_id = l.resource_id;
    select v.safety into strict how from holdfast.work_versions v where v.version_number = w.version_number;
    insert into holdfast.work_attempts (tenant_id, work_id, attempt, holder, epoch, outcome, ended_at, permit_admitted_at)
    values (l.tenant_id, l.resource_id, l.attempt, l.holder, l.epoch, 'unknown', now, l.permit_admitted_at);
    closed := holdfast.work_closure(w, l.attempt, now);
    perform holdfast.observe_closure(w, closed, now);
    what := 'suspended';
    if how = 'reconcile_before_retry' then
      update holdfast.leases_work k
      set work_state = 'reconciling', holder = null, due_at = now, wake_at = now, renew_until = null, permit_admitted_at = null
      where k.tenant_id = l.tenant_id and k.kind = 'work' and k.resource_id = l.resource_id;
      what := 'reconciling';
    elsif how = 'manual_resolution' or l.work_state = 'cancel_pending' or closed is not null then
      perform holdfast.suspend_item(l.tenant_id, l.resource_id, 'outcome_unknown', null, now);
    else
      due := holdfast.work_next_due(w, l.attempt, now);
      perform holdfast.rest_item(l.tenant_id, l.resource_id, l.attempt,
        least(due, holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after)));
      what := 'retry';
    end if;
    perform holdfast.append_work_change(l.tenant_id, 'work.lost', jsonb_build_object(what, jsonb_build_array(l.resource_id)));
    return next;
  end loop;
end
$$;

-- A completion that matched nothing. `settled`: it had, and only the answer was lost. `held`: it can still be settled.
-- Anything else is quarantined.
create function holdfast.observe_work(
  p_deployment bigint, p_tenant text, p_work uuid, p_holder uuid, p_epoch bigint, p_attempt integer, p_outcome text,
  p_result jsonb, p_code text, p_message text, p_retention text
) returns text
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  l holdfast.leases_work;
  w holdfast.work_items;
  now timestamptz;
  why text;
begin
  perform holdfast.assert_deployment(p_deployment);
  perform set_config('holdfast.tenants', p_tenant, true);
  select * into l from holdfast.leases_work k
  where k.tenant_id = p_tenant and k.kind = 'work' and k.resource_id = p_work for no key update;
  now := holdfast.work_execution_now();
  -- One that was lost and then proven has its holder in history, too: its own word still came too late.
  if exists (select from holdfast.work_history h where h.tenant_id = p_tenant and h.work_id = p_work
        and h.holder = p_holder and h.epoch = p_epoch and h.attempts = p_attempt
        and not exists (select from holdfast.work_attempts a where a.tenant_id = p_tenant and a.work_id = p_work
          and a.epoch = p_epoch and a.attempt = p_attempt and a.outcome = 'unknown'))
     or exists (select from holdfast.work_attempts a where a.tenant_id = p_tenant and a.work_id = p_work
        and a.holder = p_holder and a.epoch = p_epoch and a.attempt = p_attempt and a.outcome <> 'unknown') then
    return 'settled';
  end if;
  select * into strict w from holdfast.work_items i where i.tenant_id = p_tenant and i.work_id = p_work;
  if l.epoch = p_epoch and l.holder = p_holder and l.attempt = p_attempt and l.work_state in ('permitted', 'cancel_pending') and l.wake_at > now then
    return 'held';
  end if;
  why := case
    when now >= w.execution_not_after then 'deadline_elapsed'
    when l.resource_id is null then 'finished'
    when l.epoch <> p_epoch then 'superseded'
    else 'expired' end;
  perform holdfast.observe_closure(w, null, now);
  insert into holdfast.work_observations (tenant_id, observation_id, work_id, attempt, holder, epoch, outcome, reason, result,
    failure_code, failure_message, observed_at, retention_policy)
  values (p_tenant, gen_random_uuid(), p_work, p_attempt, p_holder, p_epoch, p_outcome, why, p_result, p_code, left(p_message, 1000), now, p_retention)
  on conflict on constraint work_observations_once do nothing;
  return 'quarantined';
end
$$;

-- Settles the most recent unknown outcome, by a reconciler or an operator. It also settles the truth of an item whose
-- admission is closed, and never opens admission again.
create function holdfast.prove_work(
  p_tenant text, p_work uuid, p_verdict text, p_source text, p_by text, p_note text, p_result jsonb, p_epoch bigint default null
) returns text
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  l holdfast.leases_work;
  w holdfast.work_items;
  lost holdfast.work_attempts;
  how text;
  now timestamptz;
  closed text;
  cancelled boolean;
begin
  perform set_config('holdfast.tenants', p_tenant, true);
  select * into l from holdfast.leases_work k
  where k.tenant_id = p_tenant and k.kind = 'work' and k.resource_id = p_work for no key update;
  now := holdfast.work_execution_now();
  if not found or l.work_state not in ('suspended', 'reconciling') then
    raise exception using errcode = 'HF015', message = format('the work is %s', coalesce(l.work_state, 'finished or unknown'));
  elsif p_source = 'reconciler' and (l.epoch is distinct from p_epoch or l.holder is null or l.wake_at <= now) then
    raise exception using errcode = 'HF001', message = 'the lease was lost while it was reconciled';
  end if;
  select * into lost from holdfast.work_attempts a
  where a.tenant_id = p_tenant and a.work_id = p_work and a.outcome = 'unknown'
    and not exists (select from holdfast.work_proofs p
      where p.tenant_id = a.tenant_id and p.work_id = a.work_id and p.attempt = a.attempt and p.epoch = a.epoch)
  order by a.attempt desc, a.epoch desc limit 1;
  if not found then
    raise exception using errcode = 'HF015', message = 'no outcome is unknown';
  end if;
  insert into holdfast.work_proofs (tenant_id, work_id, attempt, epoch, verdict, source, proven_by, note, proven_at)
  values (p_tenant, p_work, lost.attempt, lost.epoch, p_verdict, p_source, p_by, p_note, now);
  select * into strict w from holdfast.work_items i where i.tenant_id = p_tenant and i.work_id = p_work;
  select v.safety into strict how from holdfast.work_versions v where v.version_number = w.version_number;
  cancelled := exists (select from holdfast.work_cancels c where c.tenant_id = p_tenant and c.work_id = p_work);
  closed := holdfast.work_closure(w, l.attempt, now);
  perform holdfast.append_work_change(p_tenant, 'work.proven', jsonb_build_object(p_verdict, jsonb_build_array(p_work)));
  if p_verdict = 'not_applied' and holdfast.work_is_unknown(p_tenant, p_work) then
    perform holdfast.suspend_item(p_tenant, p_work, 'outcome_unknown', null, now);
    return 'suspended';
  end if;
  if p_verdict = 'not_applied' and not cancelled and closed is null and how = 'manual_resolution' then
    -- It was out of its line because nobody knew. Now it is because somebody has to decide.
    update holdfast.work_suspensions s set ended_at = now, ended_by = p_by, ending = 'proven'
    where s.tenant_id = p_tenant and s.work_id = p_work and s.ended_at is null;
    perform holdfast.suspend_item(p_tenant, p_work, 'not_applied', null, now);
    return 'suspended';
  end if;
  update holdfast.work_suspensions s set ended_at = now, ended_by = p_by, ending = 'proven'
  where s.tenant_id = p_tenant and s.work_id = p_work and s.ended_at is null;
  if p_verdict = 'applied' then
    perform holdfast.observe_closure(w, closed, now);
    perform holdfast.finish_item(l, case when cancelled then 'succeeded_after_cancel_requested' else 'succeeded' end,
      lost.holder, lost.epoch, lost.permit_admitted_at, p_result, null, null, now);
    return 'succeeded';
  elsif cancelled then
    perform holdfast.finish_item(l, 'cancelled_before_effect', null, null, null, null, null, null, now);
    return 'cancelled';
  elsif closed is not null then
    return case holdfast.close_item(l, w, closed, null, null, null, closed, 'it was not applied, and no attempt is admitted any more', now)
      when 'closed' then 'failed' else 'suspended' end;
  end if;
  perform holdfast.rest_item(p_tenant, p_work, l.attempt, least(holdfast.work_next_due(w, l.attempt, now),
    holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after)));
  return 'retry';
end
$$;

-- Puts a suspended item back in its line, never past its cutoff. What is unknown has to be proven first.
create function holdfast.resume_work(p_tenant text, p_work uuid, p_by text, p_ending text) returns text
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  l holdfast.leases_work;
  w holdfast.work_items;
  now timestamptz;
  closed text;
  due timestamptz;
begin
  perform holdfast.assert_tenant_admits();
  select * into l from holdfast.leases_work k
  where k.tenant_id = p_tenant and k.kind = 'work' and k.resource_id = p_work for no key update;
  now := holdfast.work_execution_now();
  if not found or l.work_state <> 'suspended' then
    raise exception using errcode = 'HF015', message = format('the work is %s', coalesce(l.work_state, 'finished or unknown'));
  elsif holdfast.work_is_unknown(p_tenant, p_work) then
    raise exception using errcode = 'HF015', message = 'an outcome is unknown: prove it first';
  end if;
  select * into strict w from holdfast.work_items i where i.tenant_id = p_tenant and i.work_id = p_work;
  closed := holdfast.work_closure(w, l.attempt, now);
  if closed is not null then
    raise exception using errcode = 'HF016', message = format('no attempt is admitted any more: %s', closed);
  end if;
  update holdfast.work_suspensions s set ended_at = now, ended_by = p_by, ending = p_ending
  where s.tenant_id = p_tenant and s.work_id = p_work and s.ended_at is null;
  -- Released: in its own time. Requeued: at once, where no plan says when.
  due := case when p_ending = 'requeued' and w.attempt_plan_offsets is null then now else holdfast.work_next_due(w, l.attempt, now) end;
  perform holdfast.rest_item(p_tenant, p_work, l.attempt, least(due,
    holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after)));
  perform holdfast.append_work_change(p_tenant, 'work.' || p_ending, jsonb_build_object('items', jsonb_build_array(p_work)));
  return case when l.attempt = 0 then 'pending' else 'retry_wait' end;
end
$$;

-- Asks for an end. What has not begun ends here; what runs may still succeed, and says so in its state.
create function holdfast.cancel_work(p_tenant text, p_work uuid, p_by text, p_reason text) returns text
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  l holdfast.leases_work;
  ended text;
  now timestamptz;
begin
  select * into l from holdfast.leases_work k
  where k.tenant_id = p_tenant and k.kind = 'work' and k.resource_id = p_work for no key update;
  now := holdfast.work_execution_now();
  if l.work_state is null then
    select h.state into ended from holdfast.work_history h where h.tenant_id = p_tenant and h.work_id = p_work;
    return ended;
  end if;
  insert into holdfast.work_cancels (tenant_id, work_id, requested_at, requested_by, reason)
  values (p_tenant, p_work, now, p_by, p_reason) on conflict do nothing;
  if l.work_state in ('permitted', 'cancel_pending') then
    if l.work_state = 'permitted' then
      update holdfast.leases_work k set work_state = 'cancel_pending'
      where k.tenant_id = p_tenant and k.kind = 'work' and k.resource_id = p_work;
      perform holdfast.append_work_change(p_tenant, 'work.cancel_requested', jsonb_build_object('items', jsonb_build_array(p_work)));
    end if;
    return 'cancel_pending';
  elsif not holdfast.work_is_unknown(p_tenant, p_work) then
    update holdfast.work_suspensions s set ended_at = now, ended_by = p_by, ending = 'cancelled'
    where s.tenant_id = p_tenant and s.work_id = p_work and s.ended_at is null;
    perform holdfast.finish_item(l, 'cancelled_before_effect', null, null, null, null, null, null, now);
    return 'cancelled_before_effect';
  elsif l.work_state in ('pending', 'retry_wait', 'leased') then
    perform holdfast.suspend_item(p_tenant, p_work, 'outcome_unknown', null, now);
    perform holdfast.append_work_change(p_tenant, 'work.suspended', jsonb_build_object('items', jsonb_build_array(p_work)));
    return 'suspended';
  end if;
  return l.work_state;
end
$$;

-- Takes one item out of its line.
create function holdfast.suspend_work(p_tenant text, p_work uuid, p_by text) returns text
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  l holdfast.leases_work;
begin
  select * into l from holdfast.leases_work k
  where k.tenant_id = p_tenant and k.kind = 'work' and k.resource_id = p_work for no key update;
  if l.work_state is null or l.work_state not in ('pending', 'retry_wait', 'leased') then
    raise exception using errcode = 'HF015', message = format('the work is %s', coalesce(l.work_state, 'finished or unknown'));
  end if;
  perform holdfast.suspend_item(p_tenant, p_work, 'operator', p_by, holdfast.work_execution_now());
  perform holdfast.append_work_change(p_tenant, 'work.suspended', jsonb_build_object('items', jsonb_build_array(p_work)));
  return 'suspended';
end
$$;

-- All that waits of a tenant that was disabled, at once. Its permitted items run to their end.
create function holdfast.suspend_tenant_work(p_tenant text) returns bigint
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
declare
  instant timestamptz;
  suspended bigint;
begin
  if exists (select from holdfast.tenants t where t.tenant_id = p_tenant and t.disabled_at is null) then
    raise exception using errcode = 'HF015', message = 'the tenant is not disabled';
  end if;
  instant := holdfast.work_execution_now();
  with resting as (
    update holdfast.leases_work l
    set work_state = 'suspended', holder = null, due_at = '9999-12-31T00:00:00Z', wake_at = '9999-12-31T00:00:00Z'
    where l.tenant_id = p_tenant and l.kind = 'work' and l.work_state in ('pending', 'retry_wait', 'leased')
    returning l.resource_id
  ), noted as (
    insert into holdfast.work_suspensions (tenant_id, work_id, suspended_at, reason)
    select p_tenant, r.resource_id, instant, 'tenant_disabled' from resting r
    returning 1
  )
  select count(*) into suspended from noted;
  return suspended;
end
$$;

grant execute on function holdfast.append_work_change(text, text, jsonb) to
  holdfast_gateway, holdfast_producer, holdfast_worker, holdfast_operator;
grant execute on function holdfast.is_attempt_plan(bigint[]) to
  holdfast_gateway, holdfast_producer, holdfast_worker, holdfast_operator;
grant execute on function holdfast.submit_work(text, bigint, text, text, json, text) to holdfast_gateway, holdfast_producer;
grant execute on function
  holdfast.work_cutoff(timestamptz, bigint, bigint, timestamptz), holdfast.work_closure(holdfast.work_items, integer, timestamptz),
  holdfast.work_next_due(holdfast.work_items, integer, timestamptz), holdfast.work_is_unknown(text, uuid),
  holdfast.suspend_item(text, uuid, text, text, timestamptz), holdfast.rest_item(text, uuid, integer, timestamptz),
  holdfast.finish_item(holdfast.leases_work, text, uuid, bigint, timestamptz, jsonb, text, text, timestamptz),
  holdfast.observe_closure(holdfast.work_items, text, timestamptz),
  holdfast.close_item(holdfast.leases_work, holdfast.work_items, text, uuid, bigint, timestamptz, text, text, timestamptz),
  holdfast.prove_work(text, uuid, text, text, text, text, jsonb, bigint)
  to holdfast_worker, holdfast_operator;
grant execute on function
  holdfast.note_circuit(text, text, uuid, boolean, integer, bigint, timestamptz),
  holdfast.fail_work(text, uuid, uuid, bigint, integer, text, text, boolean), holdfast.return_work(text, uuid, uuid, bigint),
  holdfast.admit_work(text, uuid, uuid, bigint, boolean),
  holdfast.turn_work(bigint, uuid, text[], tid[], text[], uuid[], bigint[], smallint[], text[], text[],
    text[], uuid[], bigint[], smallint[], text[], text[], text[], tid[], text[], uuid[], bigint[],
    text[], smallint[], text[], timestamptz[], uuid[], integer, bigint),
  holdfast.permit_text(smallint, interval, interval, timestamptz, tid, jsonb, text, timestamptz),
  holdfast.taken_work(bigint, uuid, text[], smallint[], text[], timestamptz[], uuid[], integer, bigint[]),
  holdfast.recover_work(bigint, text[], uuid[]),
  holdfast.observe_work(bigint, text, uuid, uuid, bigint, integer, text, jsonb, text, text, text)
  to holdfast_worker;
grant execute on function holdfast.resume_work(text, uuid, text, text), holdfast.cancel_work(text, uuid, text, text),
  holdfast.suspend_work(text, uuid, text), holdfast.suspend_tenant_work(text) to holdfast_operator;
-- A tenant cancels its own work through the API.
grant execute on function holdfast.cancel_work(text, uuid, text, text), holdfast.work_is_unknown(text, uuid),
  holdfast.suspend_item(text, uuid, text, text, timestamptz),
  holdfast.finish_item(holdfast.leases_work, text, uuid, bigint, timestamptz, jsonb, text, text, timestamptz) to holdfast_gateway;

-- What a tenant's own principals may do through the API with the scope for it: settle, release, requeue, suspend. The
-- gateway acts for one tenant at a time, and each of these is a command of its ledger.
grant execute on function
  holdfast.work_cutoff(timestamptz, bigint, bigint, timestamptz), holdfast.work_closure(holdfast.work_items, integer, timestamptz),
  holdfast.work_next_due(holdfast.work_items, integer, timestamptz), holdfast.rest_item(text, uuid, integer, timestamptz),
  holdfast.observe_closure(holdfast.work_items, text, timestamptz),
  holdfast.close_item(holdfast.leases_work, holdfast.work_items, text, uuid, bigint, timestamptz, text, text, timestamptz),
  holdfast.prove_work(text, uuid, text, text, text, text, jsonb, bigint), holdfast.resume_work(text, uuid, text, text),
  holdfast.suspend_work(text, uuid, text) to holdfast_gateway;
grant update (execution_deadline_reached_at, execution_admission_closed_at, execution_admission_closed_reason)
  on holdfast.work_items to holdfast_gateway;
-- Whether a live process runs a version: nothing of what the process is.
grant select (incarnation_id, seen_at, ended_at) on holdfast.incarnations to holdfast_gateway;

-- The ones that people look for. Successes, which are nearly all, pay nothing for it.
create index work_history_not_succeeded on holdfast.work_history (tenant_id, state, work_id) where state <> 'succeeded';

-- The next rows below an id that a list has to look at, at most p_limit of them: of the table in which a state is the
-- rarest. What a filter leaves of them is the caller's to say, so no page ever costs more than so many probes.
create function holdfast.look_for_work(p_state text, p_before uuid, p_limit bigint) returns setof uuid
  language plpgsql stable security invoker
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
  if p_state is null then
    return query
      select w.work_id from holdfast.work_items w
      where w.tenant_id = holdfast.current_tenant() and w.work_id < p_before order by w.work_id desc limit p_limit;
  elsif p_state = 'suspended' then
    return query
      select s.work_id from holdfast.work_suspensions s
      where s.tenant_id = holdfast.current_tenant() and s.ended_at is null and s.work_id < p_before
      order by s.work_id desc limit p_limit;
  elsif p_state = 'succeeded' then
    return query
      select h.work_id from holdfast.work_history h
      where h.tenant_id = holdfast.current_tenant() and h.work_id < p_before order by h.work_id desc limit p_limit;
  elsif p_state in ('succeeded_after_cancel_requested', 'failed', 'cancelled_before_effect') then
    return query
      select h.work_id from holdfast.work_history h
      where h.tenant_id = holdfast.current_tenant() and h.state = p_state and h.state <> 'succeeded' and h.work_id < p_before
      order by h.work_id desc limit p_limit;
  else
    return query
      select l.resource_id from holdfast.leases_work l
      where l.tenant_id = holdfast.current_tenant() and l.kind = 'work' and l.resource_id < p_before
      order by l.resource_id desc limit p_limit;
  end if;
end
$$;
grant execute on function holdfast.look_for_work(text, uuid, bigint) to holdfast_gateway, holdfast_operator;

-- Counts over all tenants for metrics: whether a circuit is open and why a result was late, and nothing of whose.
create index work_circuits_opened on holdfast.work_circuits (opened_at) where opened_at is not null;
create policy work_circuits_counted on holdfast.work_circuits for select to holdfast_dispatcher using (opened_at is not null);
grant select (opened_at) on holdfast.work_circuits to holdfast_dispatcher;
create policy work_observations_counted on holdfast.work_observations for select to holdfast_dispatcher using (true);
grant select (reason) on holdfast.work_observations to holdfast_dispatcher;

-- Finished work goes when its time has come, with everything that is said of it; an item of which a late result is
-- still kept stays. Whatever a process believes, the sweep over all tenants sees nothing that ended within a day.
create index work_history_age on holdfast.work_history using brin (finished_at);
create policy work_history_expired on holdfast.work_history to holdfast_retention
  using (finished_at < holdfast.work_execution_now() - interval '1 day');
grant select (tenant_id, work_id, finished_at), delete on holdfast.work_history to holdfast_retention;
grant select (work_id) on holdfast.work_observations to holdfast_retention;
grant select (tenant_id, work_id), delete on
  holdfast.work_items, holdfast.work_attempts, holdfast.work_proofs, holdfast.work_suspensions, holdfast.work_cancels to holdfast_retention;

create function holdfast.remove_finished_work(p_keep bigint, p_skip bigint, p_limit bigint) returns table (removed bigint, kept bigint)
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
declare
  old record;
  works uuid[];
begin
  removed := 0;
  kept := 0;
  for old in
    select x.tenant_id, array_agg(x.work_id) as works
    from (
      select h.tenant_id, h.work_id from holdfast.work_history h
      where h.finished_at < holdfast.work_execution_now() - holdfast.microseconds(p_keep)
      offset p_skip limit p_limit
    ) x
    group by x.tenant_id
  loop
    perform set_config('holdfast.tenant', old.tenant_id, true);
    works := array(
      select u.id from unnest(old.works) as u (id)
      where not exists (select from holdfast.work_observations o where o.tenant_id = old.tenant_id and o.work_id = u.id));
    kept := kept + cardinality(old.works) - cardinality(works);
    removed := removed + cardinality(works);
    delete from holdfast.work_attempts a where a.tenant_id = old.tenant_id and a.work_id = any (works);
    delete from holdfast.work_proofs p where p.tenant_id = old.tenant_id and p.work_id = any (works);
    delete from holdfast.work_suspensions s where s.tenant_id = old.tenant_id and s.work_id = any (works);
    delete from holdfast.work_cancels c where c.tenant_id = old.tenant_id and c.work_id = any (works);
    delete from holdfast.work_items w where w.tenant_id = old.tenant_id and w.work_id = any (works);
    delete from holdfast.work_history h where h.tenant_id = old.tenant_id and h.work_id = any (works);
  end loop;
  perform set_config('holdfast.tenant', '', true);
  return next;
end
$$;
grant execute on function holdfast.remove_finished_work(bigint, bigint, bigint) to holdfast_retention;
