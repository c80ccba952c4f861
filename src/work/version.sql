-- Versions: what programs registered, and which processes run it.

-- name: registerVersion :maybe
-- null: breaker_failures, breaker_probe_us, policy_schema, plan_version, offsets, circuit_us
insert into holdfast.work_versions (name, version, digest, queue, safety, attempts_max, retry_initial_microseconds,
  retry_longest_microseconds, elapsed_max_microseconds, lease_max_microseconds, breaker_failures, breaker_probe_microseconds,
  execution_policy_schema, attempt_plan_version, attempt_plan_offsets, maximum_circuit_microseconds)
values (:name, :version, decode(:digest, 'hex'), :queue, :safety, :attempts, :initial_us, :longest_us, :elapsed_us, :lease_us,
  :breaker_failures, :breaker_probe_us, :policy_schema, :plan_version, :offsets, :circuit_us)
on conflict (name, version) do nothing
returning version_number;

-- name: readVersion :maybe
select version_number, encode(digest, 'hex') as "digest!", retired_at from holdfast.work_versions
where name = :name and version = :version;

-- name: retireVersion :maybe
update holdfast.work_versions set retired_at = coalesce(retired_at, holdfast.work_execution_now())
where name = :name and version = :version
returning retired_at as "retired_at!";

-- name: registerRunner :exec
insert into holdfast.work_runners (incarnation_id, version_number)
select :holder, unnest(:versions::integer[]) on conflict do nothing;

-- Everything that a submission is held to.
-- name: readTerms :maybe
select v.version_number, v.name, v.version, v.queue, v.safety, v.attempts_max, v.retry_initial_microseconds,
  v.retry_longest_microseconds, v.elapsed_max_microseconds, v.lease_max_microseconds, v.execution_policy_schema,
  v.attempt_plan_version, v.attempt_plan_offsets, v.maximum_circuit_microseconds
from holdfast.work_versions v where v.name = :name and v.version = :version;

-- Every version, and how many live processes run it. One that has rows and nobody to run it is not silent (W2). A probe
-- for each lane of a queue that some version has, and each priority: however much waits, it is not counted.
-- name: listVersions :many
-- null: name
select v.version_number, v.name, v.version, v.queue, v.safety, v.attempts_max, v.execution_policy_schema, v.attempt_plan_version,
  v.attempt_plan_offsets, v.maximum_circuit_microseconds, v.elapsed_max_microseconds, v.lease_max_microseconds,
  v.registered_at, v.retired_at,
  (select count(*) from holdfast.work_runners r join holdfast.incarnations i using (incarnation_id)
   where r.version_number = v.version_number and i.ended_at is null
     and i.seen_at > holdfast.ledger_now() - holdfast.microseconds(:within_us)) as "runners!",
  -- At either end of each line: what somebody has to put back stands behind all times.
  coalesce(lines.waiting, false) as "waiting!", coalesce(lines.suspended, false) as "suspended!"
from (
  select * from holdfast.work_versions n where :name::text is null or n.name = :name
  order by n.name, n.version_number limit :limit
) v
cross join lateral (
  select bool_or(ends.due_at < '9999-12-31T00:00:00Z') as waiting, bool_or(ends.due_at = '9999-12-31T00:00:00Z') as suspended
  from (select distinct k.queue from holdfast.work_versions k) q
  cross join (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) as p (priority)
  cross join lateral (
    (select l.due_at from holdfast.leases_work l
     where l.queue = v.version_number || '.' || q.queue and l.priority = p.priority and l.tenant_id = holdfast.current_tenant()
     order by l.due_at, l.resource_id limit 1)
    union all
    (select l.due_at from holdfast.leases_work l
     where l.queue = v.version_number || '.' || q.queue and l.priority = p.priority and l.tenant_id = holdfast.current_tenant()
     order by l.due_at desc, l.resource_id desc limit 1)
  ) ends
) lines
order by v.name, v.version_number;
