import { Type } from "typebox";
import type { Answer } from "../core/command.ts";
import { type Gateway, type GatewayServer, principalOf } from "../http/gateway.ts";
import { command, sendAnswer } from "../http/idempotency.ts";
import { LabelQuery, labelsOf } from "../http/label-query.ts";
import { look } from "../http/look.ts";
import { problems } from "../http/openapi.ts";
import { decodePageToken, encodePageToken, PageLimit, PageToken, pageLimitOf } from "../http/page-token.ts";
import { checkVersion, etagOf, parseIfMatch, requireIfMatch } from "../http/preconditions.ts";
import { listCursor } from "../http/watch.ts";
import { AgentPatch, AgentSubmission, AgentTemplateView, AgentView } from "../wire/agent.ts";
import { Name, Uuid } from "../wire/job.ts";
import {
  type AgentRow,
  agentView,
  createAgent,
  deleteAgent,
  getAgent,
  getTemplate,
  listAgents,
  patchAgent,
} from "./agent.store.ts";

const closed = { additionalProperties: false } as const;
const AgentParams = Type.Object({ id: Uuid }, closed);
const VersionParams = Type.Object(
  { id: Uuid, version: Type.String({ pattern: "^[1-9][0-9]{0,8}$" }) },
  closed,
);
const AgentQuery = Type.Object(
  {
    name: Type.Optional(Name),
    label: LabelQuery,
    limit: Type.Optional(PageLimit),
    page_token: Type.Optional(PageToken),
  },
  closed,
);
const AgentPage = Type.Object(
  {
    items: Type.Array(AgentView),
    next_page_token: Type.Union([Type.String(), Type.Null()]),
    cursor: Type.String(),
  },
  { ...closed, title: "AgentPage" },
);

const pathOf = (id: string) => `/v1/agents/${id}`;
const answer = (status: number, row: AgentRow): Answer => ({
  status,
  body: agentView(row),
  etag: etagOf(row.resource_version),
});

export function agentRoutes(server: GatewayServer, gateway: Gateway, defaultRuntime: string): void {
  createRoute(server, gateway, defaultRuntime);
  readRoutes(server, gateway);
  changeRoutes(server, gateway);
}

function createRoute(server: GatewayServer, gateway: Gateway, defaultRuntime: string): void {
  server.post(
    "/v1/agents",
    {
      config: { scope: "agents:write" },
      schema: {
        operationId: "createAgent",
        summary: "Make an agent with version 1 of its template",
        tags: ["agents"],
        body: AgentSubmission,
        response: { 201: AgentView, ...problems(400, 401, 403, 409, 413, 415) },
      },
    },
    async (request, reply) => {
      const mutation = {
        schema: "agents.create.v1",
        operation: "agents.create",
        target: "/v1/agents",
        creates: true,
      } as const;
      const created = await command(gateway, request, mutation, async (tx) =>
        answer(201, await createAgent(tx, { submission: request.body, defaultRuntime })),
      );
      void reply.header("location", pathOf((created.body as AgentView).id));
      return sendAnswer(reply, created);
    },
  );
}

function readRoutes(server: GatewayServer, gateway: Gateway): void {
  server.get(
    "/v1/agents",
    {
      config: { scope: "agents:read" },
      schema: {
        operationId: "listAgents",
        summary: "Agents, newest first",
        tags: ["agents"],
        querystring: AgentQuery,
        response: { 200: AgentPage, ...problems(400, 401, 403) },
      },
    },
    async (request) => {
      const { tenant } = principalOf(request);
      const { query } = request;
      const filter = { labels: labelsOf(query.label), name: query.name ?? null };
      const bound = { list: "agents", tenant, ...filter };
      const start = query.page_token === undefined ? null : decodePageToken(bound, query.page_token);
      const limit = pageLimitOf(query.limit, gateway.limits);
      return look(gateway, request, async (tx) => {
        const after = start === null ? null : { createdAt: start.at, agent: start.id };
        const { agents, next } = await listAgents(tx, filter, { after, limit });
        return {
          items: agents.map(agentView),
          next_page_token:
            next === null ? null : encodePageToken(bound, { at: next.createdAt, id: next.agent }),
          cursor: await listCursor(tx, tenant),
        };
      });
    },
  );
  server.get(
    "/v1/agents/:id",
    {
      config: { scope: "agents:read" },
      schema: {
        operationId: "getAgent",
        summary: "An agent, with its newest template",
        tags: ["agents"],
        params: AgentParams,
        response: { 200: AgentView, ...problems(401, 403, 404) },
      },
    },
    async (request, reply) => {
      const row = await look(gateway, request, (tx) => getAgent(tx, request.params.id));
      return reply.header("etag", etagOf(row.resource_version)).send(agentView(row));
    },
  );
  server.get(
    "/v1/agents/:id/versions/:version",
    {
      config: { scope: "agents:read" },
      schema: {
        operationId: "getAgentTemplate",
        summary: "One version of its template, kept for good",
        tags: ["agents"],
        params: VersionParams,
        response: { 200: AgentTemplateView, ...problems(401, 403, 404) },
      },
    },
    async (request) => {
      const { id } = request.params;
      const version = Number(request.params.version);
      const spec = await look(gateway, request, (tx) => getTemplate(tx, id, version));
      return { agent_id: id, version, spec };
    },
  );
}

function changeRoutes(server: GatewayServer, gateway: Gateway): void {
  server.patch(
    "/v1/agents/:id",
    {
      config: { scope: "agents:write" },
      schema: {
        operationId: "patchAgent",
        summary: "Change labels (merge patch), or the template, which makes its next version; needs If-Match",
        tags: ["agents"],
        params: AgentParams,
        body: AgentPatch,
        response: { 200: AgentView, ...problems(400, 401, 403, 404, 409, 412, 413, 415, 428) },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const condition = parseIfMatch(request.headers["if-match"]);
      const mutation = { schema: "agents.patch.v1", operation: "agents.patch", target: pathOf(id) };
      const patched = await command(gateway, request, mutation, async (tx) => {
        const precondition = (version: bigint) => checkVersion(requireIfMatch(condition), version);
        return answer(200, await patchAgent(tx, { agent: id, patch: request.body, precondition }));
      });
      return sendAnswer(reply, patched);
    },
  );
  server.delete(
    "/v1/agents/:id",
    {
      config: { scope: "agents:write" },
      schema: {
        operationId: "deleteAgent",
        summary: "Delete it once it has no sessions: its name is free again. Deleting twice changes nothing",
        tags: ["agents"],
        params: AgentParams,
        response: { 200: AgentView, ...problems(401, 403, 404, 409, 412) },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const condition = parseIfMatch(request.headers["if-match"]);
      const mutation = { schema: "agents.delete.v1", operation: "agents.delete", target: pathOf(id) };
      const deleted = await command(gateway, request, mutation, async (tx) => {
        const precondition = (version: bigint) => checkVersion(condition, version);
        return answer(200, await deleteAgent(tx, { agent: id, precondition }));
      });
      return sendAnswer(reply, deleted);
    },
  );
}
