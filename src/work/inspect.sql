-- Work as operators see it: lists, one item, versions. No payload but in readPayload. The model stands in
-- migrations/0011 and 0012.

-- How far a page of a list looks: as many rows as a page may cost, of the table in which its state is the rarest.
-- name: lookForWork :one
-- null: state
select count(*) as "seen!", (array_agg(l.work_id order by l.work_id))[1] as "last?"
from holdfast.look_for_work(:state, :before, :look) as l (work_id);

-- Of those, the ones that the filter leaves, newest first by their ids.
-- name: listWork :many
-- null: state, name, version, queue, reason
select w.work_id, v.name, v.version, v.safety, w.queue, w.priority, w.accepted_at, w.due_at as first_due_at,
  w.attempts_max, w.execution_policy_schema, w.attempt_plan_version, w.execution_not_after, w.execution_deadline_reached_at,
  w.execution_admission_closed_at, w.execution_admission_closed_reason,
  holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after) as "cutoff!",
  coalesce(h.state, l.work_state) as "state!", coalesce(h.attempts, l.attempt, 0::smallint) as "attempts!",
  l.due_at as "next_due_at?", coalesce(h.epoch, l.epoch, 0) as "epoch!",
  h.finished_at as "finished_at?", h.failure_code as "failure_code?", h.failure_message as "failure_message?",
  s.suspended_at as "suspended_at?", s.reason as "suspended_reason?", c.requested_at as "cancel_requested_at?",
  holdfast.work_is_unknown(w.tenant_id, w.work_id) as "unknown!",
  (select count(*) from holdfast.work_proofs p where p.tenant_id = w.tenant_id and p.work_id = w.work_id) as "proofs!",
  (select count(*) from holdfast.work_observations o where o.tenant_id = w.tenant_id and o.work_id = w.work_id) as "observations!"
from holdfast.look_for_work(:state, :before, :look) as k (work_id)
join holdfast.work_items w on w.tenant_id = holdfast.current_tenant() and w.work_id = k.work_id
join holdfast.work_versions v on v.version_number = w.version_number
left join holdfast.leases_work l on l.tenant_id = w.tenant_id and l.kind = 'work' and l.resource_id = w.work_id
left join holdfast.work_history h on h.tenant_id = w.tenant_id and h.work_id = w.work_id
left join holdfast.work_suspensions s on s.tenant_id = w.tenant_id and s.work_id = w.work_id and s.ended_at is null
left join holdfast.work_cancels c on c.tenant_id = w.tenant_id and c.work_id = w.work_id
where (:state::text is null or coalesce(h.state, l.work_state) = :state)
  and (:name::text is null or v.name = :name) and (:version::text is null or v.version = :version)
  and (:queue::text is null or w.queue = :queue) and (:reason::text is null or s.reason = :reason)
order by w.work_id desc limit :limit;

-- Locked, so that what is checked of it stays true until the commit. A finished item has no row to lock.
-- name: lockWork :maybe
select l.epoch from holdfast.leases_work l
where l.tenant_id = holdfast.current_tenant() and l.kind = 'work' and l.resource_id = :work for no key update;

-- name: readSummary :maybe
select w.work_id, v.name, v.version, v.safety, w.queue, w.priority, w.accepted_at, w.due_at as first_due_at,
  w.attempts_max, w.execution_policy_schema, w.attempt_plan_version, w.execution_not_after, w.execution_deadline_reached_at,
  w.execution_admission_closed_at, w.execution_admission_closed_reason,
  holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after) as "cutoff!",
  coalesce(h.state, l.work_state) as "state!", coalesce(h.attempts, l.attempt, 0::smallint) as "attempts!",
  l.due_at as "next_due_at?", coalesce(h.epoch, l.epoch, 0) as "epoch!",
  h.finished_at as "finished_at?", h.failure_code as "failure_code?", h.failure_message as "failure_message?",
  s.suspended_at as "suspended_at?", s.reason as "suspended_reason?", c.requested_at as "cancel_requested_at?",
  holdfast.work_is_unknown(w.tenant_id, w.work_id) as "unknown!",
  (select count(*) from holdfast.work_proofs p where p.tenant_id = w.tenant_id and p.work_id = w.work_id) as "proofs!",
  (select count(*) from holdfast.work_observations o where o.tenant_id = w.tenant_id and o.work_id = w.work_id) as "observations!"
from holdfast.work_items w
join holdfast.work_versions v on v.version_number = w.version_number
left join holdfast.leases_work l on l.tenant_id = w.tenant_id and l.kind = 'work' and l.resource_id = w.work_id
left join holdfast.work_history h on h.tenant_id = w.tenant_id and h.work_id = w.work_id
left join holdfast.work_suspensions s on s.tenant_id = w.tenant_id and s.work_id = w.work_id and s.ended_at is null
left join holdfast.work_cancels c on c.tenant_id = w.tenant_id and c.work_id = w.work_id
where w.tenant_id = holdfast.current_tenant() and w.work_id = :work;

-- The circuit breaker that an item's attempts pass, when its key has one.
-- name: readCircuit :maybe
select c.circuit_key, c.failures, c.opened_at, c.probe_at, c.probing, c.probe_until
from holdfast.work_items w
join holdfast.work_circuits c on c.tenant_id = w.tenant_id and c.circuit_key = w.circuit_key
where w.tenant_id = holdfast.current_tenant() and w.work_id = :work;

-- What late results said, beside the payload of the item itself.
-- name: readLateResults :many
select o.observation_id, o.result from holdfast.work_observations o
where o.tenant_id = holdfast.current_tenant() and o.work_id = :work and o.result is not null
order by o.observed_at, o.observation_id;
