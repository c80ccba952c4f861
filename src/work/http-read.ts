import { Type } from "typebox";
import { instant } from "../core/time.ts";
import { type Gateway, type GatewayServer, principalOf } from "../http/gateway.ts";
import { look } from "../http/look.ts";
import { problems } from "../http/openapi.ts";
import { decodePageToken, encodePageToken, PageLimit, PageToken, pageLimitOf } from "../http/page-token.ts";
import { etagOf } from "../http/preconditions.ts";
import { listCursor } from "../http/watch.ts";
import { Uuid } from "../wire/job.ts";
import {
  SuspensionReason,
  WorkDetail,
  WorkName,
  WorkPayload,
  WorkQueue,
  WorkStateName,
  WorkVersionName,
  WorkVersionView,
  WorkView,
} from "../wire/work.ts";
import { listWork, readDetail, readWorkPayload } from "./inspect.store.ts";
import { versionsOf } from "./version.store.ts";

const closed = { additionalProperties: false } as const;
export const WorkParams = Type.Object({ id: Uuid }, closed);
const WorkQuery = Type.Object(
  {
    state: Type.Optional(WorkStateName),
    name: Type.Optional(WorkName),
    version: Type.Optional(WorkVersionName),
    queue: Type.Optional(WorkQueue),
    /** Why it is suspended; those alone. */
    reason: Type.Optional(SuspensionReason),
    limit: Type.Optional(PageLimit),
    page_token: Type.Optional(PageToken),
  },
  closed,
);
const WorkPage = Type.Object(
  {
    /** Perhaps fewer than asked for, or none, though there are more: only a null token ends the list. */
    items: Type.Array(WorkView),
    next_page_token: Type.Union([Type.String(), Type.Null()]),
    cursor: Type.String(),
  },
  { ...closed, title: "WorkPage" },
);
const VersionQuery = Type.Object({ name: Type.Optional(WorkName) }, closed);
const Versions = Type.Object({ items: Type.Array(WorkVersionView) }, { ...closed, title: "WorkVersions" });

export function workReadRoutes(server: GatewayServer, gateway: Gateway): void {
  listRoute(server, gateway);
  itemRoutes(server, gateway);
  server.get(
    "/v1/work-versions",
    {
      config: { scope: "work:read" },
      schema: {
        operationId: "listWorkVersions",
        summary: "Registered versions: how many live workers run each, and whether something waits for one",
        tags: ["work"],
        querystring: VersionQuery,
        response: { 200: Versions, ...problems(400, 401, 403) },
      },
    },
    async (request) =>
      look(gateway, request, async (tx) => ({ items: await versionsOf(tx, request.query.name ?? null) })),
  );
}

function listRoute(server: GatewayServer, gateway: Gateway): void {
  server.get(
    "/v1/work",
    {
      config: { scope: "work:read" },
      schema: {
        operationId: "listWork",
        summary: "Items of work, newest first; a page looks at a bounded number of them, whatever it finds",
        tags: ["work"],
        querystring: WorkQuery,
        response: { 200: WorkPage, ...problems(400, 401, 403) },
      },
    },
    async (request) => {
      const { tenant } = principalOf(request);
      const { state = null, name = null, version = null, queue = null, reason = null } = request.query;
      const filter = { state, name, version, queue, reason };
      const bound = { list: "work", tenant, ...filter };
      const { page_token: token } = request.query;
      const before = token === undefined ? null : decodePageToken(bound, token).id;
      const limit = pageLimitOf(request.query.limit, gateway.limits);
      return look(gateway, request, async (tx) => {
        const { items, next } = await listWork(tx, filter, { before, limit });
        return {
          items: [...items],
          // The id alone is the place.
          next_page_token: next === null ? null : encodePageToken(bound, { at: instant(0n), id: next }),
          cursor: await listCursor(tx, tenant),
        };
      });
    },
  );
}

function itemRoutes(server: GatewayServer, gateway: Gateway): void {
  server.get(
    "/v1/work/:id",
    {
      config: { scope: "work:read" },
      schema: {
        operationId: "getWork",
        summary: "Every stored fact of an item but its payload, planned attempts against what happened",
        tags: ["work"],
        params: WorkParams,
        response: { 200: WorkDetail, ...problems(401, 403, 404) },
      },
    },
    async (request, reply) => {
      const detail = await look(gateway, request, (tx) => readDetail(tx, request.params.id));
      return reply.header("etag", etagOf(detail.resource_version)).send(detail);
    },
  );
  server.get(
    "/v1/work/:id/payload",
    {
      config: { scope: "work:payload" },
      schema: {
        operationId: "getWorkPayload",
        summary: "What was submitted, and what it gave; needs a scope of its own",
        tags: ["work"],
        params: WorkParams,
        response: { 200: WorkPayload, ...problems(401, 403, 404) },
      },
    },
    async (request) => look(gateway, request, (tx) => readWorkPayload(tx, request.params.id)),
  );
}
