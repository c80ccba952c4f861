-- 0014 Turns that cost less before their first item, and lines that are remembered when they are empty.
--
-- No column changes, and what a process of 0012 or 0013 calls is there, with the same arguments; the answers have one
-- more part, which such a process does not read. So either release works on either schema.
--
-- What a turn settles was looked for one by one, each at its place. Now all places are looked at together, and the epoch
-- says which item stands there. The last that was seen in a line came from a sort, and comes from a group; and a line
-- that was taken to its end is told as well, so that whoever hears of something new can look there first.
--
-- Conditions of leases_work are read anew by each statement that writes it. As constants they say the same in half the
-- length. Their rows are read once by this migration, under its lock of that table: a second or two for a million.

alter table holdfast.leases_work
  drop constraint leases_work_state, drop constraint leases_work_permit, drop constraint leases_work_rests;
alter table holdfast.leases_work
  add constraint leases_work_state check (
    work_state = any ('{pending,leased,permitted,retry_wait,cancel_pending,reconciling,suspended}')),
  add constraint leases_work_permit check (work_state <> all ('{permitted,cancel_pending}') or (holder is not null and attempt >= 1)),
  add constraint leases_work_rests check (work_state <> all ('{pending,retry_wait,suspended}') or holder is null);
-- After the row is written: before it, each row would be locked once more for a trigger that only refuses.
drop trigger leases_work_transitions on holdfast.leases_work;
create trigger leases_work_transitions after update of work_state on holdfast.leases_work
  for each row when (old.work_state <> new.work_state and old.work_state || '>' || new.work_state <> all ('{
    pending>leased,pending>permitted,pending>suspended,
    retry_wait>leased,retry_wait>permitted,retry_wait>suspended,
    leased>permitted,leased>pending,leased>retry_wait,leased>suspended,
    permitted>pending,permitted>retry_wait,permitted>cancel_pending,permitted>reconciling,permitted>suspended,
    cancel_pending>reconciling,cancel_pending>suspended,
    reconciling>retry_wait,reconciling>suspended,
    suspended>pending,suspended>retry_wait}'))
  execute function holdfast.refuse_transition();

-- The id of a batch, which its change bears. In the order of time, milliseconds first: the index is written where it was
-- written last, and not all over.
create or replace function holdfast.batch_id() returns uuid
  language sql volatile security invoker parallel safe
  return (lpad(to_hex(floor(date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::bigint), 12, '0')
    || '-7' || substr(gen_random_uuid()::text, 16))::uuid;
grant execute on function holdfast.batch_id() to holdfast_gateway, holdfast_producer, holdfast_worker, holdfast_operator;

create or replace function holdfast.append_work_change(p_tenant text, p_operation text, p_body jsonb) returns void
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
declare
  batch constant uuid := holdfast.batch_id();
begin
  insert into holdfast.resource_changes (tenant_id, kind, resource_id, root_id, resource_version, operation, body)
  values (p_tenant, 'work', batch, batch, 1, p_operation, p_body);
end
$$;

-- Accepts items of one version, in the transaction that calls it: it commits and vanishes with them. An identity that
-- is known resolves to its row, whatever has become of it, before anything else is asked; another request under it is
-- a conflict (HF014), and so is one whose two identities are of different rows.
create or replace function holdfast.submit_work(
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
  draining text;
  deployment bigint;
  admitted boolean;
  fresh uuid[];
  late boolean;
  item record;
  by_id holdfast.work_items;
  by_key holdfast.work_items;
  total bigint;
begin
  perform set_config('holdfast.tenant', p_tenant, true);
  -- One look for all that may refuse it; who refuses says why.
  select s.deployment_epoch, (select d.reason from holdfast.drains d where d.kind = 'work'),
    exists (select from holdfast.tenants t where t.tenant_id = p_tenant and t.disabled_at is null)
  into strict deployment, draining, admitted from holdfast.store s;
  if p_deployment <> deployment then
    perform holdfast.assert_deployment(p_deployment);
  end if;
  if not admitted then
    perform holdfast.assert_tenant_admits();
  end if;
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
      raise exception using errcode = 'HF014', message = format('item %s: its %s belongs to another request, that of work %s', item.n,
        case when by_id.work_id = item.id then 'id' else 'key' end, by_id.work_id);
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
-- The answer is JSON: `i`, the items as [tenant, id, lane, epoch, what, place of the row], `c`, a cursor for each line of
-- which there may be more, and `q`, one for each that was taken to its end: turn_work() takes from there, and passes
-- over nothing that is held, or finished while an old snapshot keeps it. What is due before a cursor or in another line
-- is seen by the next claim.
create or replace function holdfast.claim_work(
  p_deployment bigint, p_holder uuid, p_lanes text[], p_limit integer, p_lease bigint
) returns text
  language plpgsql volatile security invoker
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off
  set enable_hashjoin = off set enable_mergejoin = off set enable_sort = off set enable_incremental_sort = off set jit = off set plan_cache_mode = force_generic_plan as $$
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
        where l.queue = n.lane and l.priority = n.priority and l.tenant_id = n.tenant_id and l.due_at <= now
          and (l.holder is null or l.wake_at <= now)
        order by l.due_at, l.resource_id limit 1
      ) oldest
      where n.tenant_id is not null
    ) d
    order by d.priority, d.due_at, d.tenant_id
  ), taken as materialized (
    select t.*, d.share, row_number() over () as n
    from due d
    cross join lateral (
      select l.ctid as row, l.tenant_id, l.resource_id, l.queue, l.priority, l.due_at, l.epoch, l.work_state from holdfast.leases_work l
      where l.queue = d.lane and l.priority = d.priority and l.tenant_id = d.tenant_id and l.due_at >= d.due_at and l.due_at <= now
        and (l.holder is null or l.wake_at <= now) and l.work_state is not null
      order by l.due_at, l.resource_id
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
  ), seen as (
    -- The last that was looked at in each line.
    select t.queue, t.priority, t.tenant_id, t.dues[t.size] as due_at, t.works[t.size] as work_id, t.n, t.size = t.share as more
    from (
      select k.queue, k.priority, k.tenant_id, k.share, count(*)::integer as size, array_agg(k.due_at) as dues,
        array_agg(k.resource_id) as works, min(k.n) as n
      from taken k group by k.queue, k.priority, k.tenant_id, k.share
    ) t
  )
  select '{"i":[' || coalesce((
      select string_agg('["' || i.tenant_id || '","' || i.resource_id || '","' || i.queue || '",' || i.epoch || ',"' || i.what || '","' || i.row::text || '"]', ',')
      from (
        select * from claimed
        union all
        select t.tenant_id, t.resource_id, t.queue, t.epoch, 'recover', t.row from taken t where t.work_state in ('permitted', 'cancel_pending')
      ) i), '') || '],'
    || (select '"c":' || coalesce(json_agg(e.cursor order by e.n) filter (where e.more), '[]')::text
          || ',"q":' || coalesce(json_agg(e.cursor order by e.n) filter (where not e.more), '[]')::text
        from (select c.n, c.more, json_build_array(c.queue, c.priority, c.tenant_id, c.due_at::text, c.work_id) as cursor from seen c) e) || '}'
  into answer;
  return answer;
end
$$;

-- One turn of a worker, of any number of tenants: settles what it finished and permits what it will run next. The
-- arrays of each part have an element for each item: s_ what succeeded, o_ what came to something else, n_ what is next;
-- t_ has the cursors of a claim, from which up to t_limit more due items are taken and permitted at once, without being
-- claimed before: their rows are written once less. What needs a second look there, is passed over and left to a claim.
-- s_results and s_circuits are empty when no item has one; an empty text in them stands for none.
--
-- An item's row is looked for at its place, where the claim or the permit left it, and by its key only when it has
-- moved: a renewal or a cancellation writes it anew. Whatever stands at the places, only the holder, the state, the
-- expiry and the epoch make it one of the items: no epoch is given twice, and under one there is one attempt.
-- The answer is JSON: `p`, permits as [place in n_, attempt, milliseconds left to begin, milliseconds of the lease,
-- acceptance, place of the row, input, and where they are not null provider key, circuit key and deadline]; `t`, taken
-- ones as [place in t_, id, epoch], then as from the attempt on, and of each line in which something was seen [place in
-- t_, due, id] of the last, in `c` where there may be more and in `q` where that was all; `n`, what has no permit as
-- [place in n_, why]; `s`, places in s_ that are not this holder's to settle; `o`, what each of o_ came to. An expiry
-- or a cutoff that passed between the look and the end lets the whole turn be run again (40001).
create or replace function holdfast.turn_work(
  p_deployment bigint, p_holder uuid, p_tenants text[],
  s_rows tid[], s_tenants text[], s_works uuid[], s_epochs bigint[], s_attempts smallint[], s_results text[], s_circuits text[],
  o_tenants text[], o_works uuid[], o_epochs bigint[], o_attempts smallint[], o_outcomes text[], o_codes text[], o_messages text[],
  n_rows tid[], n_tenants text[], n_works uuid[], n_epochs bigint[],
  t_lanes text[], t_priorities smallint[], t_tenants text[], t_dues timestamptz[], t_works uuid[], t_limit integer, p_lease bigint
) returns text
  language plpgsql volatile security invoker
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off
  set enable_hashjoin = off set enable_mergejoin = off set enable_sort = off set enable_incremental_sort = off set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  now timestamptz;
  soonest timestamptz;
  latest timestamptz;
  settled bigint[] := '{}';
  -- By epoch, in which a key is found by halves.
  results constant jsonb := case when cardinality(s_results) > 0 then jsonb_object(s_epochs::text[], s_results) end;
  many integer[];
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
      where l.ctid = any (s_rows) and l.epoch = any (s_epochs) and l.holder = p_holder
        and l.work_state in ('permitted', 'cancel_pending') and l.wake_at > now
      returning l.tenant_id, l.resource_id, l.attempt, l.epoch, l.permit_admitted_at, l.work_state, l.wake_at
    ), kept as (
      insert into holdfast.work_history (tenant_id, work_id, state, attempts, finished_at, holder, epoch, permit_admitted_at, result)
      select g.tenant_id, g.resource_id, case g.work_state when 'permitted' then 'succeeded' else 'succeeded_after_cancel_requested' end,
        g.attempt, now, p_holder, g.epoch, g.permit_admitted_at, nullif(results ->> g.epoch::text, '')::jsonb
      from gone g
    ), told as (
      insert into holdfast.resource_changes (tenant_id, kind, resource_id, root_id, resource_version, operation, body)
      select b.tenant_id, 'work', b.batch, b.batch, 1, 'work.settled', b.body
      from (
        select g.tenant_id, holdfast.batch_id() as batch, ('{"succeeded":["' || string_agg(g.resource_id::text, '","') || '"]}')::jsonb as body
        from gone g group by g.tenant_id
      ) b
    )
    select coalesce(array_agg(g.epoch), '{}'), min(g.wake_at) into settled, soonest from gone g;

    if cardinality(settled) < cardinality(s_works) then
      missing := array(select u.place::integer from unnest(s_epochs) with ordinality as u (epoch, place) where u.epoch <> all (settled));
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
          select g.tenant_id, holdfast.batch_id() as batch, ('{"succeeded":["' || string_agg(g.resource_id::text, '","') || '"]}')::jsonb as body
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
    -- How many lines of each priority share the limit.
    many := array_fill(0, array[4], array[0]);
    foreach n in array t_priorities loop
      many[n] := many[n] + 1;
    end loop;
    with free as materialized (
      select f.*, d.place, d.share
      from (
        select c.*, (t_limit + many[c.priority] - 1) / many[c.priority] as share
        from unnest(t_lanes, t_priorities, t_tenants, t_dues, t_works) with ordinality as c (lane, priority, tenant_id, due_at, work_id, place)
      ) d
      cross join lateral (
        select l.ctid as row, l.tenant_id, l.resource_id, l.due_at from holdfast.leases_work l
        where l.queue = d.lane and l.priority = d.priority and l.tenant_id = d.tenant_id
          and (l.due_at, l.resource_id) > (d.due_at, d.work_id) and l.due_at <= now
          and l.holder is null and l.work_state in ('pending', 'retry_wait')
        order by l.due_at, l.resource_id
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
      (select '"c":' || coalesce(json_agg(e.cursor) filter (where e.more), '[]')::text
         || ',"q":' || coalesce(json_agg(e.cursor) filter (where not e.more), '[]')::text
       from (
         select k.size = k.share as more, json_build_array(k.place, k.dues[k.size]::text, k.works[k.size]) as cursor
         from (
           select f.place, f.share, count(*)::integer as size, array_agg(f.due_at) as dues, array_agg(f.resource_id) as works
           from free f group by f.place, f.share
         ) k
       ) e)
    into taken, soonest, seen from given g;
  end if;

  if soonest <= holdfast.work_execution_now() then
    raise exception using errcode = '40001', message = 'a lease or a cutoff passed during the turn';
  end if;
  return '{"p":[' || coalesce(permitted, '') || '],"t":[' || coalesce(taken, '') || '],' || coalesce(seen, '"c":[],"q":[]') || ',"n":' || passed || ',"s":' || to_json(coalesce(missing, '{}')) || ',"o":' || others || '}';
end
$$;
