import { canonicalDigest } from "../core/canonical.ts";
import { appendChange } from "../core/change.sql.ts";
import { HoldfastError } from "../core/errors.ts";
import { uuidv7 } from "../core/ids.ts";
import { type Labels, labelFaults, mergeLabels, refuseFaults, sameLabels } from "../core/labels.ts";
import type { Transaction } from "../core/postgres/transition.ts";
import { formatInstant, type Instant } from "../core/time.ts";
import type { AgentPatch, AgentSpec, AgentSubmission, AgentView } from "../wire/agent.ts";
import * as sql from "./agent.sql.ts";
import { checkAgentSpec } from "./agent.ts";

/** An agent with its newest template, as the statements of `agent.sql` give it. */
export type AgentRow = sql.ReadAgentRow;

/** Throws when the caller knows another version than the one that is there (G4). */
export type Precondition = (version: bigint) => void;

/** A new agent with version 1 of its template. `conflict` when another has its name. */
export async function createAgent(
  tx: Transaction,
  create: { readonly submission: AgentSubmission; readonly defaultRuntime: string },
): Promise<AgentRow> {
  const { metadata, spec } = create.submission;
  const labels = metadata.labels ?? {};
  refuseFaults(labelFaults(labels, "/metadata/labels"));
  checkAgentSpec(spec);
  await tx.run(sql.assertTenantAdmits, {});
  const agent = uuidv7();
  const runtime = spec.runtime ?? create.defaultRuntime;
  await tx.run(sql.insertAgent, { agent, name: metadata.name, runtime, labels, now: tx.now });
  await tx.run(sql.insertTemplate, { agent, version: 1, template: spec, digest: canonicalDigest(spec) });
  return changed(tx, agent, "agent.created");
}

export async function getAgent(tx: Transaction, agent: string): Promise<AgentRow> {
  return found(await tx.run(sql.readAgent, { agent }));
}

/** The one that has the name now. */
export async function getAgentByName(tx: Transaction, name: string): Promise<AgentRow> {
  return found(await tx.run(sql.readAgentByName, { name }));
}

/** A template that never changes. */
export async function getTemplate(tx: Transaction, agent: string, version: number): Promise<AgentSpec> {
  const row = await tx.run(sql.readTemplate, { agent, version });
  if (row === undefined) throw new HoldfastError("not_found", `the agent has no version ${version}`);
  return row.template as AgentSpec; // the schema validated it before it was stored
}

export interface AgentPosition {
  readonly createdAt: Instant;
  readonly agent: string;
}

/** Newest first; `next` is where the following page begins, null on the last one. */
export async function listAgents(
  tx: Transaction,
  filter: { readonly labels: Labels; readonly name: string | null },
  page: { readonly after: AgentPosition | null; readonly limit: number },
): Promise<{ readonly agents: readonly AgentRow[]; readonly next: AgentPosition | null }> {
  const rows = await tx.run(sql.listAgents, {
    labels: filter.labels,
    name: filter.name,
    after_created_at: page.after?.createdAt ?? null,
    after_agent: page.after?.agent ?? null,
    limit: BigInt(page.limit + 1),
  });
  const agents = rows.slice(0, page.limit);
  const last = agents.at(-1);
  const more = rows.length > page.limit && last !== undefined;
  return { agents, next: more ? { createdAt: last.created_at, agent: last.agent_id } : null };
}

/** Labels, and a whole new template as the next version. Sessions keep the version that they want. */
export async function patchAgent(
  tx: Transaction,
  change: { readonly agent: string; readonly patch: AgentPatch; readonly precondition?: Precondition },
): Promise<AgentRow> {
  const { agent, patch } = change;
  const row = await lockAgent(tx, agent);
  change.precondition?.(row.resource_version);
  if (row.deleted_at !== null) throw new HoldfastError("conflict", "the agent is deleted");
  const before = row.labels as Labels;
  const labels = mergeLabels(before, patch.labels ?? {});
  refuseFaults(labelFaults(labels, "/labels"));
  const spec = patch.spec;
  const digest = spec === undefined ? row.template_digest : canonicalDigest(spec);
  const renewed = digest !== row.template_digest;
  if (!renewed && sameLabels(before, labels)) return row;
  const version = row.version + (renewed ? 1 : 0);
  if (renewed && spec !== undefined) {
    checkAgentSpec(spec);
    if (spec.runtime !== undefined && spec.runtime !== row.runtime) {
      const message = `the agent's sandboxes are on ${row.runtime}: make another agent for ${spec.runtime}`;
      throw new HoldfastError("invalid_request", message, {
        fields: [{ pointer: "/spec/runtime", message: "an agent keeps its runtime" }],
      });
    }
    await tx.run(sql.insertTemplate, { agent, version, template: spec, digest });
  }
  await tx.run(sql.setAgent, { agent, version, labels });
  return changed(tx, agent, renewed ? "agent.renewed" : "agent.patched");
}

/** Its name is free again. `conflict` while it has a session that is not deleted. */
export async function deleteAgent(
  tx: Transaction,
  request: { readonly agent: string; readonly precondition?: Precondition },
): Promise<AgentRow> {
  const row = await lockAgent(tx, request.agent);
  request.precondition?.(row.resource_version);
  if (row.deleted_at !== null) return row;
  if ((await tx.run(sql.hasSessions, { agent: row.agent_id })).found) {
    throw new HoldfastError("conflict", "the agent has sessions: delete them first");
  }
  await tx.run(sql.deleteAgent, { agent: row.agent_id });
  return changed(tx, row.agent_id, "agent.deleted");
}

async function lockAgent(tx: Transaction, agent: string): Promise<AgentRow> {
  found(await tx.run(sql.lockAgent, { agent }));
  return getAgent(tx, agent);
}

function found<Row>(row: Row | undefined): Row {
  if (row === undefined) throw new HoldfastError("not_found", "there is no such agent");
  return row;
}

/** The change of a transition that has just bumped the version, with the agent as it is now. */
async function changed(tx: Transaction, agent: string, operation: string): Promise<AgentRow> {
  const row = await getAgent(tx, agent);
  const { spec: _spec, ...body } = agentView(row);
  await tx.run(appendChange, {
    kind: "agent",
    resource: agent,
    root: agent,
    version: row.resource_version,
    operation,
    // A template can be larger than a change: its digest and version say which one it is.
    body,
  });
  return row;
}

export function agentView(row: AgentRow): AgentView {
  return {
    id: row.agent_id,
    name: row.name,
    labels: { ...(row.labels as Labels) },
    version: row.version,
    spec: row.template as AgentSpec,
    spec_digest: row.template_digest,
    resource_version: String(row.resource_version),
    created_at: formatInstant(row.created_at),
    updated_at: formatInstant(row.updated_at),
    deleted_at: row.deleted_at === null ? null : formatInstant(row.deleted_at),
  };
}
