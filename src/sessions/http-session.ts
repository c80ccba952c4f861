import { Type } from "typebox";
import type { Answer } from "../core/command.ts";
import { isHoldfastError } from "../core/errors.ts";
import type { Transaction } from "../core/postgres/transition.ts";
import { blockedIn } from "../http/blocked.ts";
import { type Gateway, type GatewayServer, principalOf } from "../http/gateway.ts";
import { command, sendAnswer } from "../http/idempotency.ts";
import { LabelQuery, labelsOf, oneOrMore } from "../http/label-query.ts";
import { look } from "../http/look.ts";
import { problems } from "../http/openapi.ts";
import { decodePageToken, encodePageToken, PageLimit, PageToken, pageLimitOf } from "../http/page-token.ts";
import { checkVersion, etagOf, parseIfMatch, requireIfMatch } from "../http/preconditions.ts";
import { listCursor } from "../http/watch.ts";
import { Name, Uuid } from "../wire/job.ts";
import {
  PermissionGrant,
  SessionPatch,
  SessionState,
  SessionSubmission,
  SessionView,
} from "../wire/session.ts";
import { getAgentByName } from "./agent.store.ts";
import {
  createSession,
  deleteSession,
  getSession,
  grantPermission,
  listSessions,
  patchSession,
  type SessionRow,
  sessionView,
} from "./session.store.ts";

const closed = { additionalProperties: false } as const;
export const SessionParams = Type.Object({ id: Uuid }, closed);
const SessionQuery = Type.Object(
  {
    agent: Type.Optional(Name),
    state: oneOrMore(SessionState, 7),
    label: LabelQuery,
    limit: Type.Optional(PageLimit),
    page_token: Type.Optional(PageToken),
  },
  closed,
);
const SessionPage = Type.Object(
  {
    items: Type.Array(SessionView),
    next_page_token: Type.Union([Type.String(), Type.Null()]),
    cursor: Type.String(),
  },
  { ...closed, title: "SessionPage" },
);

export const sessionPath = (id: string) => `/v1/sessions/${id}`;
const answer = (status: number, row: SessionRow): Answer => ({
  status,
  body: sessionView(row),
  etag: etagOf(row.resource_version),
});

export function sessionRoutes(server: GatewayServer, gateway: Gateway): void {
  createRoute(server, gateway);
  listRoute(server, gateway);
  getRoute(server, gateway);
  patchRoute(server, gateway);
  deleteRoute(server, gateway);
  grantRoute(server, gateway);
}

function createRoute(server: GatewayServer, gateway: Gateway): void {
  server.post(
    "/v1/sessions",
    {
      config: { scope: "sessions:write" },
      schema: {
        operationId: "createSession",
        summary: "Begin a session of an agent, or a copy of another session's revision",
        tags: ["sessions"],
        body: SessionSubmission,
        response: { 201: SessionView, ...problems(400, 401, 403, 404, 409, 413, 415) },
      },
    },
    async (request, reply) => {
      const { agent, agent_version: version, labels, from } = request.body;
      const mutation = {
        schema: "sessions.create.v1",
        operation: "sessions.create",
        target: "/v1/sessions",
        creates: true,
      } as const;
      const created = await command(gateway, request, mutation, async (tx) =>
        answer(
          201,
          await createSession(tx, {
            agent,
            ...(version === undefined ? {} : { version }),
            ...(labels === undefined ? {} : { labels }),
            ...(from === undefined
              ? {}
              : { from: { session: from.session_id, revision: BigInt(from.revision) } }),
          }),
        ),
      );
      void reply.header("location", sessionPath((created.body as SessionView).id));
      return sendAnswer(reply, created);
    },
  );
}

function listRoute(server: GatewayServer, gateway: Gateway): void {
  server.get(
    "/v1/sessions",
    {
      config: { scope: "sessions:read" },
      schema: {
        operationId: "listSessions",
        summary: "Sessions that are not deleted, newest first",
        tags: ["sessions"],
        querystring: SessionQuery,
        response: { 200: SessionPage, ...problems(400, 401, 403) },
      },
    },
    async (request) => {
      const { tenant } = principalOf(request);
      const { query } = request;
      const labels = labelsOf(query.label);
      const states = [...new Set([query.state ?? []].flat())].sort();
      const bound = { list: "sessions", tenant, labels, states, agent: query.agent ?? null };
      const start = query.page_token === undefined ? null : decodePageToken(bound, query.page_token);
      const limit = pageLimitOf(query.limit, gateway.limits);
      return look(gateway, request, async (tx) => {
        const agent = query.agent === undefined ? null : await agentNamed(tx, query.agent);
        const after = start === null ? null : { createdAt: start.at, session: start.id };
        const { sessions, next } =
          agent === undefined
            ? { sessions: [], next: null }
            : await listSessions(tx, { agent, states, labels }, { after, limit });
        return {
          items: sessions.map(shownBy(await blockedIn(tx))),
          next_page_token:
            next === null ? null : encodePageToken(bound, { at: next.createdAt, id: next.session }),
          cursor: await listCursor(tx, tenant),
        };
      });
    },
  );
}

/** With what keeps it from going on: a deleted one needs nobody any more. */
const shownBy = (blocked: Awaited<ReturnType<typeof blockedIn>>) => (row: SessionRow) => ({
  ...sessionView(row),
  ...(row.deleted_at === null ? blocked(row.runtime) : {}),
});

/** Undefined: nobody has the name, so nothing is begun with it. */
async function agentNamed(tx: Transaction, name: string): Promise<string | undefined> {
  try {
    return (await getAgentByName(tx, name)).agent_id;
  } catch (error) {
    if (isHoldfastError(error, "not_found")) return undefined;
    throw error;
  }
}

function getRoute(server: GatewayServer, gateway: Gateway): void {
  server.get(
    "/v1/sessions/:id",
    {
      config: { scope: "sessions:read" },
      schema: {
        operationId: "getSession",
        summary: "A session: what is wanted of it, and what was observed",
        tags: ["sessions"],
        params: SessionParams,
        response: { 200: SessionView, ...problems(401, 403, 404) },
      },
    },
    async (request, reply) => {
      const { row, shown } = await look(gateway, request, async (tx) => ({
        row: await getSession(tx, request.params.id),
        shown: shownBy(await blockedIn(tx)),
      }));
      return reply.header("etag", etagOf(row.resource_version)).send(shown(row));
    },
  );
}

function patchRoute(server: GatewayServer, gateway: Gateway): void {
  server.patch(
    "/v1/sessions/:id",
    {
      config: { scope: "sessions:write" },
      schema: {
        operationId: "patchSession",
        summary: "Change labels (merge patch), the desired state or the template version; needs If-Match",
        tags: ["sessions"],
        params: SessionParams,
        body: SessionPatch,
        response: { 200: SessionView, ...problems(400, 401, 403, 404, 409, 412, 413, 415, 428) },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const { labels, desired_state: desired, agent_version: version } = request.body;
      const condition = parseIfMatch(request.headers["if-match"]);
      const mutation = { schema: "sessions.patch.v1", operation: "sessions.patch", target: sessionPath(id) };
      const patched = await command(gateway, request, mutation, async (tx) => {
        const patch = {
          ...(labels === undefined ? {} : { labels }),
          ...(desired === undefined ? {} : { desired }),
          ...(version === undefined ? {} : { version }),
        };
        const precondition = (current: bigint) => checkVersion(requireIfMatch(condition), current);
        return answer(200, await patchSession(tx, { session: id, patch, precondition }));
      });
      return sendAnswer(reply, patched);
    },
  );
}

function deleteRoute(server: GatewayServer, gateway: Gateway): void {
  server.delete(
    "/v1/sessions/:id",
    {
      config: { scope: "sessions:write" },
      schema: {
        operationId: "deleteSession",
        summary:
          "Delete it and its bundles; what is at work is cancelled, what was asked and answered stays on record. Deleting twice changes nothing",
        tags: ["sessions"],
        params: SessionParams,
        response: { 202: SessionView, ...problems(401, 403, 404, 409, 412) },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const condition = parseIfMatch(request.headers["if-match"]);
      const mutation = {
        schema: "sessions.delete.v1",
        operation: "sessions.delete",
        target: sessionPath(id),
      };
      const deleted = await command(gateway, request, mutation, async (tx) => {
        const precondition = (current: bigint) => checkVersion(condition, current);
        return answer(202, await deleteSession(tx, { session: id, reason: "session deleted", precondition }));
      });
      return sendAnswer(reply, deleted);
    },
  );
}

function grantRoute(server: GatewayServer, gateway: Gateway): void {
  server.post(
    "/v1/sessions/:id(^[^:/]+)::grant",
    {
      config: { scope: "sessions:write" },
      schema: {
        operationId: "grantPermission",
        summary: "Let its agent do something from now on; an activation that waits for this runs again",
        tags: ["sessions"],
        params: SessionParams,
        body: PermissionGrant,
        response: { 200: SessionView, ...problems(400, 401, 403, 404, 409, 412, 413, 415) },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const { permission } = request.body;
      const condition = parseIfMatch(request.headers["if-match"]);
      const mutation = { schema: "sessions.grant.v1", operation: "sessions.grant", target: sessionPath(id) };
      const granted = await command(gateway, request, mutation, async (tx) => {
        const precondition = (current: bigint) => checkVersion(condition, current);
        return answer(200, await grantPermission(tx, { session: id, permission, precondition }));
      });
      return sendAnswer(reply, granted);
    },
  );
}
