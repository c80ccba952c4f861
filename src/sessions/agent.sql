-- Agents: names with numbered templates. The model stands in migrations/0008_agents_and_sessions.sql. Each statement
-- that gives an agent gives the same columns, with its newest template.

-- name: assertTenantAdmits :exec
select holdfast.assert_tenant_admits();

-- name: insertAgent :exec
insert into holdfast.agents (tenant_id, agent_id, name, runtime, labels, created_at, updated_at)
values (holdfast.current_tenant(), :agent, :name, :runtime, :labels, :now, :now);

-- name: insertTemplate :exec
insert into holdfast.agent_templates (tenant_id, agent_id, version, template, template_digest)
values (holdfast.current_tenant(), :agent, :version, :template, :digest);

-- name: readAgent :maybe
select a.agent_id, a.name, a.runtime, a.version, a.labels, a.resource_version, a.created_at, a.updated_at, a.deleted_at,
  t.template, t.template_digest
from holdfast.agents a
join holdfast.agent_templates t on t.tenant_id = a.tenant_id and t.agent_id = a.agent_id and t.version = a.version
where a.tenant_id = holdfast.current_tenant() and a.agent_id = :agent;

-- name: readAgentByName :maybe
select a.agent_id, a.name, a.runtime, a.version, a.labels, a.resource_version, a.created_at, a.updated_at, a.deleted_at,
  t.template, t.template_digest
from holdfast.agents a
join holdfast.agent_templates t on t.tenant_id = a.tenant_id and t.agent_id = a.agent_id and t.version = a.version
where a.tenant_id = holdfast.current_tenant() and a.name = :name and a.deleted_at is null;

-- Its row stays as it is until the transaction ends; its newest template is read after that.
-- name: lockAgent :maybe
select agent_id from holdfast.agents
where tenant_id = holdfast.current_tenant() and agent_id = :agent
for no key update;

-- A session that begins keeps its agent from being deleted meanwhile.
-- name: keepAgent :maybe
select agent_id from holdfast.agents
where tenant_id = holdfast.current_tenant() and agent_id = :agent and deleted_at is null
for share;

-- name: readTemplate :maybe
select version, template, template_digest from holdfast.agent_templates
where tenant_id = holdfast.current_tenant() and agent_id = :agent and version = :version;

-- Newest first, after the last of the page before.
-- name: listAgents :many
-- null: after_created_at, after_agent, name
select a.agent_id, a.name, a.runtime, a.version, a.labels, a.resource_version, a.created_at, a.updated_at, a.deleted_at,
  t.template, t.template_digest
from holdfast.agents a
join holdfast.agent_templates t on t.tenant_id = a.tenant_id and t.agent_id = a.agent_id and t.version = a.version
where a.tenant_id = holdfast.current_tenant() and a.deleted_at is null
  and a.labels @> :labels
  and (:name::text is null or a.name = :name)
  and (:after_created_at::timestamptz is null or (a.created_at, a.agent_id) < (:after_created_at, :after_agent::uuid))
order by a.created_at desc, a.agent_id desc
limit :limit;

-- name: setAgent :exec
update holdfast.agents
set version = :version, labels = :labels, updated_at = holdfast.ledger_now(), resource_version = resource_version + 1
where tenant_id = holdfast.current_tenant() and agent_id = :agent;

-- name: deleteAgent :exec
update holdfast.agents
set deleted_at = holdfast.ledger_now(), updated_at = holdfast.ledger_now(), resource_version = resource_version + 1
where tenant_id = holdfast.current_tenant() and agent_id = :agent and deleted_at is null;

-- name: hasSessions :one
select exists (
  select from holdfast.cloud_sessions s
  where s.tenant_id = holdfast.current_tenant() and s.agent_id = :agent and s.deleted_at is null) as "found!";
