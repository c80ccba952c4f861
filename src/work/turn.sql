-- Turns: what a worker asks of the database while it runs. The functions stand in migrations/0012 and, as they are now, in 0014.

-- name: claimWork :one
select holdfast.claim_work(:deployment_epoch, :holder, :lanes, :limit, :lease_us) as "answer!";

-- name: turnWork :one
select holdfast.turn_work(:deployment_epoch, :holder, :tenants,
  :done_rows::text[]::tid[], :done_tenants, :done_works, :done_epochs, :done_attempts, :done_results, :done_circuits,
  :other_tenants, :other_works, :other_epochs, :other_attempts, :other_outcomes, :other_codes, :other_messages,
  :next_rows::text[]::tid[], :next_tenants, :next_works, :next_epochs,
  :take_lanes, :take_priorities, :take_tenants, :take_dues::text[]::timestamptz[], :take_works, :take_limit, :lease_us) as "answer!";

-- What a turn took whose answer was lost.
-- name: takenWork :many
select tenant_id as "tenant_id!", work_id as "work_id!", lane as "lane!", epoch as "epoch!", attempt as "attempt!", place as "place!"
from holdfast.taken_work(:deployment_epoch, :holder,
  :take_lanes, :take_priorities, :take_tenants, :take_dues::text[]::timestamptz[], :take_works, :take_limit, :known);

-- name: recoverWork :many
select place as "place!", what as "what!" from holdfast.recover_work(:deployment_epoch, :tenants, :works);

-- name: observeWork :one
-- null: result, code, message, retention
select holdfast.observe_work(:deployment_epoch, :tenant, :work, :holder, :epoch, :attempt, :outcome, :result, :code, :message,
  :retention) as "what!";

-- What a permit is at whose answer was lost.
-- name: readPermit :maybe
select l.work_state, l.attempt, l.holder, l.epoch,
  (extract(epoch from l.wake_at - holdfast.work_execution_now()) * 1000000)::bigint as "left_microseconds!"
from holdfast.leases_work l
where l.tenant_id = holdfast.current_tenant() and l.kind = 'work' and l.resource_id = :work;

-- What a reconciler is asked about: the most recent unknown outcome of an item that this holder reconciles.
-- name: readUnknown :maybe
select w.input, w.provider_key, w.accepted_at, w.execution_not_after, a.attempt, a.permit_admitted_at, a.ended_at
from holdfast.leases_work l
join holdfast.work_items w on w.tenant_id = l.tenant_id and w.work_id = l.resource_id
join holdfast.work_attempts a on a.tenant_id = l.tenant_id and a.work_id = l.resource_id and a.outcome = 'unknown'
where l.tenant_id = holdfast.current_tenant() and l.kind = 'work' and l.resource_id = :work
  and l.holder = :holder and l.epoch = :epoch and l.work_state = 'reconciling'
  and not exists (
    select from holdfast.work_proofs p
    where p.tenant_id = a.tenant_id and p.work_id = a.work_id and p.attempt = a.attempt and p.epoch = a.epoch)
order by a.attempt desc, a.epoch desc limit 1;

-- A reconciler that could not tell is asked again later.
-- name: deferReconciliation :exec
update holdfast.leases_work l
set holder = null, due_at = later.at, wake_at = later.at
from (select holdfast.work_execution_now() + holdfast.microseconds(:pause_us) as at) later
where l.tenant_id = holdfast.current_tenant() and l.kind = 'work' and l.resource_id = :work
  and l.holder = :holder and l.epoch = :epoch and l.work_state = 'reconciling';
