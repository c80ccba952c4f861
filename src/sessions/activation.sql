-- Activations: what a session was asked, and how far that is. The model stands in migrations/0009_activations.sql. Each
-- statement that gives an activation gives the same columns.

-- Its place in the session; the session's row is locked from here to commit.
-- name: takePlace :one
update holdfast.cloud_sessions set admitted = admitted + 1
where tenant_id = holdfast.current_tenant() and session_id = :session
returning admitted as ordinal;

-- How many wait or are at work, counted no further than to :queue_max.
-- name: countUnfinished :one
select count(*)::integer as "unfinished!" from (
  select from holdfast.activations a
  where a.tenant_id = holdfast.current_tenant() and a.session_id = :session
    and a.state in ('queued', 'running', 'committing', 'waiting')
  limit :queue_max
) unfinished;

-- name: insertActivation :exec
insert into holdfast.activations (tenant_id, session_id, activation_id, activation_uid, ordinal, content, content_digest, admitted_at)
values (holdfast.current_tenant(), :session, :activation, :uid, :ordinal, :content, :digest, :now);

-- By the client's id, within its session.
-- name: readActivation :maybe
select a.session_id, a.activation_id, a.activation_uid, a.ordinal, a.content, a.content_digest, a.state, a.resource_version,
  a.admitted_at, a.cancel_requested_at, a.cancel_reason, a.tries, a.started_at, a.retry_at, a.base_revision, a.agent_version,
  a.last_failure_code, a.last_failure_message, a.reply, a.required_action, a.finished_at, a.revision, a.failure_code,
  a.failure_message, a.cleaned_at
from holdfast.activations a
where a.tenant_id = holdfast.current_tenant() and a.session_id = :session and a.activation_id = :activation;

-- name: lockActivation :maybe
select a.session_id, a.activation_id, a.activation_uid, a.ordinal, a.content, a.content_digest, a.state, a.resource_version,
  a.admitted_at, a.cancel_requested_at, a.cancel_reason, a.tries, a.started_at, a.retry_at, a.base_revision, a.agent_version,
  a.last_failure_code, a.last_failure_message, a.reply, a.required_action, a.finished_at, a.revision, a.failure_code,
  a.failure_message, a.cleaned_at
from holdfast.activations a
where a.tenant_id = holdfast.current_tenant() and a.session_id = :session and a.activation_id = :activation
for no key update of a;

-- By our own id.
-- name: readActivationByUid :maybe
select a.session_id, a.activation_id, a.activation_uid, a.ordinal, a.content, a.content_digest, a.state, a.resource_version,
  a.admitted_at, a.cancel_requested_at, a.cancel_reason, a.tries, a.started_at, a.retry_at, a.base_revision, a.agent_version,
  a.last_failure_code, a.last_failure_message, a.reply, a.required_action, a.finished_at, a.revision, a.failure_code,
  a.failure_message, a.cleaned_at
from holdfast.activations a
where a.tenant_id = holdfast.current_tenant() and a.activation_uid = :uid;

-- In the order of admission, after the last of the page before, or backwards from it.
-- name: listActivations :many
-- null: after, before
select a.session_id, a.activation_id, a.activation_uid, a.ordinal, a.content, a.content_digest, a.state, a.resource_version,
  a.admitted_at, a.cancel_requested_at, a.cancel_reason, a.tries, a.started_at, a.retry_at, a.base_revision, a.agent_version,
  a.last_failure_code, a.last_failure_message, a.reply, a.required_action, a.finished_at, a.revision, a.failure_code,
  a.failure_message, a.cleaned_at
from holdfast.activations a
where a.tenant_id = holdfast.current_tenant() and a.session_id = :session
  and (:after::bigint is null or a.ordinal > :after) and (:before::bigint is null or a.ordinal < :before)
  and (cardinality(:states::text[]) = 0 or a.state = any (:states))
order by case when :backwards then -a.ordinal else a.ordinal end
limit :limit;

-- name: listUnfinished :many
select activation_id from holdfast.activations
where tenant_id = holdfast.current_tenant() and session_id = :session and state in ('queued', 'running', 'committing', 'waiting')
order by ordinal;

-- Nothing of it runs: it is cancelled at once. What never ran leaves nothing to clean.
-- name: cancelIdleActivation :exec
with clock as (select holdfast.ledger_now() as now)
update holdfast.activations
set state = 'cancelled', cancel_requested_at = clock.now, cancel_reason = :reason, finished_at = clock.now,
    resource_version = resource_version + 1
from clock
where tenant_id = holdfast.current_tenant() and activation_uid = :uid;

-- The controller of a running one sees this and stops it.
-- name: requestCancellation :exec
update holdfast.activations
set cancel_requested_at = holdfast.ledger_now(), cancel_reason = :reason, resource_version = resource_version + 1
where tenant_id = holdfast.current_tenant() and activation_uid = :uid;

-- What it needed was done: it runs again, from the head as it is.
-- name: resumeActivation :exec
update holdfast.activations
set state = 'queued', retry_at = null, proposed_by = null, candidate_sha256 = null, reply = null, required_action = null,
    resource_version = resource_version + 1
where tenant_id = holdfast.current_tenant() and activation_uid = :uid and state = 'waiting';

-- name: readWaiting :maybe
select activation_id, required_action from holdfast.activations
where tenant_id = holdfast.current_tenant() and session_id = :session and state = 'waiting';
