import { Type } from "typebox";
import type { Answer } from "../core/command.ts";
import type { Transaction } from "../core/postgres/transition.ts";
import { instant } from "../core/time.ts";
import { blockedIn } from "../http/blocked.ts";
import { type Gateway, type GatewayServer, principalOf } from "../http/gateway.ts";
import { command, type Mutation, sendAnswer } from "../http/idempotency.ts";
import { oneOrMore } from "../http/label-query.ts";
import { look } from "../http/look.ts";
import { problems } from "../http/openapi.ts";
import { decodePageToken, encodePageToken, PageLimit, PageToken, pageLimitOf } from "../http/page-token.ts";
import { checkVersion, etagOf, type IfMatch, parseIfMatch } from "../http/preconditions.ts";
import { listCursor } from "../http/watch.ts";
import { ActivationState, ActivationSubmission, ActivationView } from "../wire/activation.ts";
import { JobCancellation, Uuid } from "../wire/job.ts";
import {
  type ActivationRow,
  activationView,
  admitActivation,
  cancelActivation,
  getActivation,
  listActivations,
  retryActivation,
} from "./activation.store.ts";
import { SessionParams, sessionPath } from "./http-session.ts";
import { getSession } from "./session.store.ts";
import { lockSession } from "./session-row.store.ts";

const closed = { additionalProperties: false } as const;
const ActivationParams = Type.Object({ id: Uuid, activation: Uuid }, closed);
const ActivationQuery = Type.Object(
  {
    state: oneOrMore(ActivationState, 7),
    /** `asc`, as they were admitted, when left out. */
    order: Type.Optional(Type.Union([Type.Literal("asc"), Type.Literal("desc")])),
    limit: Type.Optional(PageLimit),
    page_token: Type.Optional(PageToken),
  },
  closed,
);
const ActivationPage = Type.Object(
  {
    items: Type.Array(ActivationView),
    next_page_token: Type.Union([Type.String(), Type.Null()]),
    cursor: Type.String(),
  },
  { ...closed, title: "ActivationPage" },
);

interface Named {
  readonly id: string;
  readonly activation: string;
}
const pathOf = ({ id, activation }: Named) => `${sessionPath(id)}/activations/${activation}`;
const answer = (status: number, row: ActivationRow): Answer => ({
  status,
  body: activationView(row),
  etag: etagOf(row.resource_version),
});

export function activationRoutes(server: GatewayServer, gateway: Gateway, queueMax: number): void {
  admitRoute(server, gateway, queueMax);
  listRoute(server, gateway);
  getRoute(server, gateway);
  cancelRoute(server, gateway);
  retryRoute(server, gateway);
}

function admitRoute(server: GatewayServer, gateway: Gateway, queueMax: number): void {
  server.post(
    "/v1/sessions/:id/activations",
    {
      config: { scope: "sessions:write" },
      schema: {
        operationId: "admitActivation",
        summary: "Put a stimulus into the session's line, once by its id",
        tags: ["sessions"],
        params: SessionParams,
        body: ActivationSubmission,
        response: {
          201: ActivationView,
          /** It was admitted before, and is this. */
          200: ActivationView,
          ...problems(400, 401, 403, 404, 409, 413, 415, 429),
        },
      },
    },
    async (request, reply) => {
      const session = request.params.id;
      const { id, stimulus } = request.body;
      const target = `${sessionPath(session)}/activations`;
      const mutation: Mutation = { schema: "activations.admit.v1", operation: "activations.admit", target };
      const admitted = await command(gateway, request, mutation, async (tx) => {
        const line = { session, stimulus, queueMax, ...(id === undefined ? {} : { id }) };
        const { activation, admitted: fresh } = await admitActivation(tx, line);
        return answer(fresh ? 201 : 200, activation);
      });
      const made = { id: session, activation: (admitted.body as ActivationView).id };
      return sendAnswer(reply.header("location", pathOf(made)), admitted);
    },
  );
}

function listRoute(server: GatewayServer, gateway: Gateway): void {
  server.get(
    "/v1/sessions/:id/activations",
    {
      config: { scope: "sessions:read" },
      schema: {
        operationId: "listActivations",
        summary: "The session's transcript: what it was asked and what came of it, in order",
        tags: ["sessions"],
        params: SessionParams,
        querystring: ActivationQuery,
        response: { 200: ActivationPage, ...problems(400, 401, 403, 404) },
      },
    },
    async (request) => {
      const session = request.params.id;
      const { tenant } = principalOf(request);
      const { query } = request;
      const backwards = query.order === "desc";
      const states = [...new Set([query.state ?? []].flat())].sort();
      const bound = { list: "activations", tenant, session, backwards, states };
      const start = query.page_token === undefined ? null : decodePageToken(bound, query.page_token);
      const limit = pageLimitOf(query.limit, gateway.limits);
      return look(gateway, request, async (tx) => {
        const { runtime } = await getSession(tx, session);
        // A place in the session stands in the token where other lists have a time.
        const from =
          start === null ? {} : backwards ? { before: BigInt(start.at) } : { after: BigInt(start.at) };
        const rows = await listActivations(tx, session, { ...from, backwards, states, limit: limit + 1 });
        const items = rows.slice(0, limit);
        const last = items.at(-1);
        const more = rows.length > limit && last !== undefined;
        return {
          items: items.map(shownBy(await blockedIn(tx), runtime)),
          next_page_token: more
            ? encodePageToken(bound, { at: instant(last.ordinal), id: last.activation_id })
            : null,
          cursor: await listCursor(tx, tenant),
        };
      });
    },
  );
}

function getRoute(server: GatewayServer, gateway: Gateway): void {
  server.get(
    "/v1/sessions/:id/activations/:activation",
    {
      config: { scope: "sessions:read" },
      schema: {
        operationId: "getActivation",
        summary: "One turn of a session",
        tags: ["sessions"],
        params: ActivationParams,
        response: { 200: ActivationView, ...problems(401, 403, 404) },
      },
    },
    async (request, reply) => {
      const { id, activation } = request.params;
      const { row, shown } = await look(gateway, request, async (tx) => {
        const { runtime } = await getSession(tx, id);
        const row = await getActivation(tx, id, activation);
        return { row, shown: shownBy(await blockedIn(tx), runtime) };
      });
      return reply.header("etag", etagOf(row.resource_version)).send(shown(row));
    },
  );
}

/** With what keeps it from going on, which a controller would have to do. */
const shownBy =
  (blocked: Awaited<ReturnType<typeof blockedIn>>, runtime: string) => (row: ActivationRow) => ({
    ...activationView(row),
    ...(["queued", "running", "committing"].includes(row.state) ? blocked(runtime) : {}),
  });

/** With the session locked, so that what is checked stays true until the commit. */
async function check(tx: Transaction, { id, activation }: Named, condition: IfMatch): Promise<void> {
  await lockSession(tx, id);
  checkVersion(condition, (await getActivation(tx, id, activation)).resource_version);
}

function cancelRoute(server: GatewayServer, gateway: Gateway): void {
  server.post(
    "/v1/sessions/:id/activations/:activation(^[^:/]+)::cancel",
    {
      config: { scope: "sessions:write" },
      schema: {
        operationId: "cancelActivation",
        summary: "Cancel it: at once while nothing of it runs, else unless its checkpoint is committed first",
        tags: ["sessions"],
        params: ActivationParams,
        body: Type.Union([JobCancellation, Type.Null()]),
        response: { 202: ActivationView, ...problems(400, 401, 403, 404, 409, 412, 413, 415) },
      },
    },
    async (request, reply) => {
      const named = request.params;
      const condition = parseIfMatch(request.headers["if-match"]);
      const mutation = {
        schema: "activations.cancel.v1",
        operation: "activations.cancel",
        target: pathOf(named),
      };
      const cancelled = await command(gateway, request, mutation, async (tx) => {
        await check(tx, named, condition);
        const { id: session, activation } = named;
        const reason = request.body?.reason ?? "requested";
        return answer(202, await cancelActivation(tx, { session, activation, reason }));
      });
      return sendAnswer(reply, cancelled);
    },
  );
}

function retryRoute(server: GatewayServer, gateway: Gateway): void {
  server.post(
    "/v1/sessions/:id/activations/:activation(^[^:/]+)::retry",
    {
      config: { scope: "sessions:write" },
      schema: {
        operationId: "retryActivation",
        summary: "Run one that waits again, from the head as it is",
        tags: ["sessions"],
        params: ActivationParams,
        body: Type.Union([Type.Object({}, closed), Type.Null()]),
        response: { 202: ActivationView, ...problems(400, 401, 403, 404, 409, 412, 413, 415) },
      },
    },
    async (request, reply) => {
      const named = request.params;
      const condition = parseIfMatch(request.headers["if-match"]);
      const mutation = {
        schema: "activations.retry.v1",
        operation: "activations.retry",
        target: pathOf(named),
      };
      const retried = await command(gateway, request, mutation, async (tx) => {
        await check(tx, named, condition);
        return answer(202, await retryActivation(tx, { session: named.id, activation: named.activation }));
      });
      return sendAnswer(reply, retried);
    },
  );
}
