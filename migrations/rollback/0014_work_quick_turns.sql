-- Rolls back 0014 in what it does: submissions, claims, turns and their changes are those of 0013 again, word for word. Nothing is
-- stopped, since nothing was enabled: Work goes on, and a worker no longer knows where new items of an empty line stand.
-- The conditions of leases_work stay, since they say the same.
--
-- Run it as holdfast_owner, with this release or the one before deployed. No row is removed or changed; history and
-- floors stay. Running it again changes nothing. Until it is undone, `holdfast schema verify` and `apply` say that these
-- functions have changed. To undo, as the owner's login:
--   (echo 'set role holdfast_owner;'; cat migrations/0014_work_quick_turns.sql) | psql -1 URL

begin;
set local role holdfast_owner;
create or replace function holdfast.append_work_change(p_tenant text, p_operation text, p_body jsonb) returns void
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
declare
  batch constant uuid := gen_random_uuid();
begin
  insert into holdfast.resource_changes (tenant_id, kind, resource_id, root_id, resource_version, operation, body)
  values (p_tenant, 'work', batch, batch, 1, p_operation, p_body);
end
$$;

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
  ), cursors as (
    -- The last that was seen of each line that gave its whole share.
    select t.queue, t.priority, t.tenant_id, t.due_at, t.resource_id, t.n
    from (
      select distinct on (k.queue, k.priority, k.tenant_id) k.queue, k.priority, k.tenant_id, k.due_at, k.resource_id, k.share, k.n,
        count(*) over (partition by k.queue, k.priority, k.tenant_id) as size
      from taken k order by k.queue, k.priority, k.tenant_id, k.n desc
    ) t where t.size = t.share
  )
  select '{"i":[' || coalesce((
      select string_agg('["' || i.tenant_id || '","' || i.resource_id || '","' || i.queue || '",' || i.epoch || ',"' || i.what || '","' || i.row::text || '"]', ',')
      from (
        select * from claimed
        union all
        select t.tenant_id, t.resource_id, t.queue, t.epoch, 'recover', t.row from taken t where t.work_state in ('permitted', 'cancel_pending')
      ) i), '') || '],"c":'
    || coalesce((select json_agg(json_build_array(c.queue, c.priority, c.tenant_id, c.due_at::text, c.resource_id) order by c.n) from cursors c), '[]')::text || '}'
  into answer;
  return answer;
end
$$;

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
      (select json_agg(json_build_array(f.place, f.due_at::text, f.resource_id))
       from (
         select distinct on (k.place) k.place, k.due_at, k.resource_id, k.share, count(*) over (partition by k.place) as size
         from free k order by k.place, k.n desc
       ) f where f.size = f.share)
    into taken, soonest, seen from given g;
  end if;

  if soonest <= holdfast.work_execution_now() then
    raise exception using errcode = '40001', message = 'a lease or a cutoff passed during the turn';
  end if;
  return '{"p":[' || coalesce(permitted, '') || '],"t":[' || coalesce(taken, '') || '],"c":' || coalesce(seen, '[]') || ',"n":' || passed || ',"s":' || to_json(coalesce(missing, '{}')) || ',"o":' || others || '}';
end
$$;
commit;
