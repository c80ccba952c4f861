-- Sessions: what is wanted of them, and what was observed. The model stands in migrations/0008_agents_and_sessions.sql.
-- Each statement that gives a session gives the same columns. Lock order: lease, session, activation, sandbox, change.

-- name: insertSession :exec
insert into holdfast.cloud_sessions (tenant_id, session_id, agent_id, agent_version, labels, created_at, updated_at)
values (holdfast.current_tenant(), :session, :agent, :version, :labels, :now, :now);

-- name: readSession :maybe
select s.session_id, s.agent_id, g.name as agent_name, g.runtime, s.agent_version, s.labels, s.desired_state, s.permissions,
  s.generation, s.observed_generation, s.observed_state, s.observed_at, s.head_revision, s.resource_version,
  s.created_at, s.updated_at, s.deleted_at
from holdfast.cloud_sessions s
join holdfast.agents g on g.tenant_id = s.tenant_id and g.agent_id = s.agent_id
where s.tenant_id = holdfast.current_tenant() and s.session_id = :session;

-- Whoever needs its lease too locks that first.
-- name: lockSession :maybe
select s.session_id, s.agent_id, g.name as agent_name, g.runtime, s.agent_version, s.labels, s.desired_state, s.permissions,
  s.generation, s.observed_generation, s.observed_state, s.observed_at, s.head_revision, s.resource_version,
  s.created_at, s.updated_at, s.deleted_at
from holdfast.cloud_sessions s
join holdfast.agents g on g.tenant_id = s.tenant_id and g.agent_id = s.agent_id
where s.tenant_id = holdfast.current_tenant() and s.session_id = :session
for no key update of s;

-- Newest first, after the last of the page before.
-- name: listSessions :many
-- null: after_created_at, after_session, agent
select s.session_id, s.agent_id, g.name as agent_name, g.runtime, s.agent_version, s.labels, s.desired_state, s.permissions,
  s.generation, s.observed_generation, s.observed_state, s.observed_at, s.head_revision, s.resource_version,
  s.created_at, s.updated_at, s.deleted_at
from holdfast.cloud_sessions s
join holdfast.agents g on g.tenant_id = s.tenant_id and g.agent_id = s.agent_id
where s.tenant_id = holdfast.current_tenant() and s.deleted_at is null
  and (:agent::uuid is null or s.agent_id = :agent)
  and (cardinality(:states::text[]) = 0 or s.observed_state = any (:states))
  and s.labels @> :labels
  and (:after_created_at::timestamptz is null or (s.created_at, s.session_id) < (:after_created_at, :after_session::uuid))
order by s.created_at desc, s.session_id desc
limit :limit;

-- What is wanted: a change of it is a new generation, a change of the labels alone is none.
-- name: setSession :exec
update holdfast.cloud_sessions
set labels = :labels, agent_version = :version, desired_state = :desired, permissions = :permissions,
    generation = generation + (case when :renewed then 1 else 0 end),
    updated_at = holdfast.ledger_now(), resource_version = resource_version + 1
where tenant_id = holdfast.current_tenant() and session_id = :session;

-- What was observed, of which generation.
-- name: observeSession :exec
update holdfast.cloud_sessions
set observed_generation = :generation, observed_state = :state, observed_at = holdfast.ledger_now(),
    deleted_at = case when :state = 'deleted' then holdfast.ledger_now() end,
    updated_at = holdfast.ledger_now(), resource_version = resource_version + 1
where tenant_id = holdfast.current_tenant() and session_id = :session;

-- Something is to be done with the session: its lease is made, or is due at once when nobody holds it. Whoever
-- holds it can't give it up between this and the commit.
-- name: makeDue :exec
insert into holdfast.leases (tenant_id, kind, resource_id, queue, due_at, wake_at)
values (holdfast.current_tenant(), :kind, :resource, :queue, :now, :now)
on conflict (tenant_id, kind, resource_id) do update
  set due_at = least(leases.due_at, excluded.due_at),
      wake_at = case when leases.holder is null then least(leases.due_at, excluded.due_at) else leases.wake_at end;

-- Of a tenant's runs, one begins at a time, so that they can be counted (see readRoom).
-- name: lockRoom :exec
select pg_advisory_xact_lock(hashtextextended('holdfast runs ' || holdfast.current_tenant(), 0));

-- How many of a tenant's activations are at work, counted no further than to :runs_max. A statement of its own after
-- the lock, whose snapshot is then younger than the lock.
-- name: countRuns :one
select count(*)::integer as "running!" from (
  select from holdfast.activations a
  where a.tenant_id = holdfast.current_tenant() and a.state in ('running', 'committing')
  limit :runs_max
) running;

-- There is room for a run, so the session of the tenant that has waited for it longest may try again at once. One that
-- waits for its next try waits on. Call it under lockRoom.
-- name: hastenNext :exec
update holdfast.leases l
set due_at = :now, wake_at = :now
where l.tenant_id = holdfast.current_tenant() and l.kind = 'session' and l.resource_id = (
  select n.resource_id from holdfast.leases n
  where n.tenant_id = holdfast.current_tenant() and n.kind = 'session' and n.holder is null and n.wake_at > :now
    and not exists (
      select from holdfast.activations a
      where a.tenant_id = n.tenant_id and a.session_id = n.resource_id and a.state = 'queued' and a.retry_at > :now)
  order by n.wake_at limit 1 for update skip locked);
