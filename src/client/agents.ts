import type { AgentPatch, AgentSubmission, AgentTemplateView, AgentView } from "../wire/agent.ts";
import { labelQuery, type Pages, pages, type WatchedPage } from "./pages.ts";
import type { Conditional, Mutation, Resources } from "./resource.ts";
import type { CallOptions, Transport } from "./transport.ts";

export interface AgentFilter extends CallOptions {
  readonly name?: string | undefined;
  /** All of these. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** Agents of a page. */
  readonly limit?: number | undefined;
}

export type AgentList = Pages<AgentView, WatchedPage<AgentView>>;

export interface AgentCalls {
  createAgent(agent: AgentSubmission, options?: Mutation): Promise<AgentView>;
  getAgent(id: string, options?: CallOptions): Promise<AgentView>;
  /** One version of its template, kept for good. */
  getAgentTemplate(id: string, version: number, options?: CallOptions): Promise<AgentTemplateView>;
  listAgents(filter?: AgentFilter): AgentList;
  /** Labels, or a whole new template, which becomes the next version. */
  patchAgent(
    id: string,
    patch: AgentPatch,
    options: Mutation & { readonly ifMatch: string },
  ): Promise<AgentView>;
  deleteAgent(id: string, options?: Conditional): Promise<AgentView>;
}

export function agentCalls(transport: Transport, { one }: Resources): AgentCalls {
  const path = (id: string) => `/v1/agents/${encodeURIComponent(id)}`;
  return {
    createAgent: (body, options) => one({ ...options, method: "POST", path: "/v1/agents", body }),
    getAgent: (id, options) => one({ ...options, path: path(id) }),
    getAgentTemplate: async (id, version, { signal } = {}) =>
      (await transport.json<AgentTemplateView>({ path: `${path(id)}/versions/${version}`, signal })).value,
    listAgents: ({ name, labels, limit, signal } = {}) =>
      pages(transport, { path: "/v1/agents", query: { name, label: labelQuery(labels), limit }, signal }),
    patchAgent: (id, body, options) => one({ ...options, method: "PATCH", path: path(id), body }),
    deleteAgent: (id, options) => one({ ...options, method: "DELETE", path: path(id) }),
  };
}
