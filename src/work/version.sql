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

-- Every version, and how many live processes run it. One that has rows and nobody to run it is not silent (W2).
-- name: listVersions :many
select v.version_number, v.name, v.version, v.queue, v.safety, v.execution_policy_schema, v.registered_at, v.retired_at,
  (select count(*) from holdfast.work_runners r join holdfast.incarnations i using (incarnation_id)
   where r.version_number = v.version_number and i.ended_at is null
     and i.seen_at > holdfast.ledger_now() - holdfast.microseconds(:within_us)) as "runners!",
  exists (
    select from holdfast.leases_work l
    where l.tenant_id = holdfast.current_tenant() and l.kind = 'work'
      and l.queue in (select v.version_number || '.' || q.queue from (select distinct k.queue from holdfast.work_versions k) q)
  ) as "waiting!"
from holdfast.work_versions v
order by v.name, v.version_number;
