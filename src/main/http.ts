import { Type } from "typebox";
import { type GatewayServer, principalOf, type Routes } from "../http/gateway.ts";
import type { LoopProgress } from "../http/health.ts";
import { problems } from "../http/openapi.ts";
import { Uuid } from "../wire/job.ts";
import { LeaseView, OverviewView, SystemView } from "../wire/overview.ts";
import { listLeases, readOverview, readSystem } from "./overview.store.ts";

const closed = { additionalProperties: false } as const;
const LeaseQuery = Type.Object(
  {
    kind: Type.Optional(Type.String({ minLength: 1, maxLength: 63, pattern: "^[a-z][a-z_]*$" })),
    resource: Type.Optional(Uuid),
  },
  closed,
);
const LeaseList = Type.Object({ items: Type.Array(LeaseView) }, { ...closed, title: "LeaseList" });

/** What operators look at first: a tenant at a glance, its leases, the installation. All of it only reads. */
export function overviewRoutes(progress: () => readonly LoopProgress[]): Routes {
  return (server, gateway) => {
    server.get(
      "/v1/overview",
      describe("getOverview", "The tenant at a glance", "system:read", OverviewView),
      async (request) => ({
        ...(await readOverview(gateway.db, principalOf(request).tenant)),
        loops: progress().map(({ name, progressing, detail }) => ({ name, progressing, detail })),
      }),
    );
    leaseRoute(server, gateway);
    server.get(
      "/v1/system",
      describe(
        "getSystem",
        "The installation: its schema, and the processes that use it",
        "operator",
        SystemView,
      ),
      () => readSystem(gateway.db),
    );
  };
}

function leaseRoute(server: GatewayServer, gateway: Parameters<Routes>[1]): void {
  const described = describe(
    "listLeases",
    "Who attends to what, the longest due first",
    "system:read",
    LeaseList,
  );
  server.get(
    "/v1/leases",
    { ...described, schema: { ...described.schema, querystring: LeaseQuery } },
    async (request) => {
      const { kind = null, resource = null } = request.query;
      const items = await listLeases(gateway.db, principalOf(request).tenant, { kind, resource });
      return { items };
    },
  );
}

function describe<T extends Type.TSchema>(
  operationId: string,
  summary: string,
  scope: "system:read" | "operator",
  found: T,
) {
  return {
    config: { scope },
    schema: { operationId, summary, tags: ["server"], response: { 200: found, ...problems(400, 401, 403) } },
  } as const;
}
