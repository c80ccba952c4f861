import { Type } from "typebox";
import { redeliverPublication } from "../core/outbox.store.ts";
import { view } from "../core/postgres/transition.ts";
import { type Gateway, type GatewayServer, principalOf } from "../http/gateway.ts";
import { command, sendAnswer } from "../http/idempotency.ts";
import { problems } from "../http/openapi.ts";
import { decodePageToken, encodePageToken, PageLimit, PageToken, pageLimitOf } from "../http/page-token.ts";
import { etagOf } from "../http/preconditions.ts";
import { DeliveryDetail, DeliveryState, DeliveryView, DestinationName } from "../wire/delivery.ts";
import { Uuid } from "../wire/job.ts";
import { getDelivery, listDeliveries } from "./delivery.store.ts";

const closed = { additionalProperties: false } as const;
const DeliveryParams = Type.Object({ id: Uuid }, closed);
const DeliveryQuery = Type.Object(
  {
    state: Type.Optional(DeliveryState),
    session: Type.Optional(Uuid),
    destination: Type.Optional(DestinationName),
    limit: Type.Optional(PageLimit),
    page_token: Type.Optional(PageToken),
  },
  closed,
);
const DeliveryPage = Type.Object(
  { items: Type.Array(DeliveryView), next_page_token: Type.Union([Type.String(), Type.Null()]) },
  { ...closed, title: "DeliveryPage" },
);

/** What sessions tell their destinations, and what became of it (S8). */
export function deliveryRoutes(server: GatewayServer, gateway: Gateway): void {
  readRoutes(server, gateway);
  redeliverRoute(server, gateway);
}

function readRoutes(server: GatewayServer, gateway: Gateway): void {
  server.get(
    "/v1/deliveries",
    {
      config: { scope: "deliveries:read" },
      schema: {
        operationId: "listDeliveries",
        summary: "Replies on their way, newest first; destination=inbox is the built-in inbox",
        tags: ["deliveries"],
        querystring: DeliveryQuery,
        response: { 200: DeliveryPage, ...problems(400, 401, 403) },
      },
    },
    ({ query, principal }) => {
      const { tenant } = principalOf({ principal });
      const { state = null, session = null, destination = null } = query;
      const filter = { state, session, destination };
      const bound = { list: "deliveries", tenant, ...filter };
      const after = query.page_token === undefined ? null : decodePageToken(bound, query.page_token);
      const limit = pageLimitOf(query.limit, gateway.limits);
      return view(gateway.db, { role: "gateway", tenant, name: "listDeliveries" }, async (tx) => {
        const { deliveries, next } = await listDeliveries(tx, filter, { after, limit });
        return {
          items: [...deliveries],
          next_page_token: next === null ? null : encodePageToken(bound, next),
        };
      });
    },
  );
  server.get(
    "/v1/deliveries/:id",
    {
      config: { scope: "deliveries:read" },
      schema: {
        operationId: "getDelivery",
        summary: "One of them, with what is told",
        tags: ["deliveries"],
        params: DeliveryParams,
        response: { 200: DeliveryDetail, ...problems(401, 403, 404) },
      },
    },
    async ({ params, principal }, reply) => {
      const { tenant } = principalOf({ principal });
      const delivery = await view(gateway.db, { role: "gateway", tenant, name: "getDelivery" }, (tx) =>
        getDelivery(tx, params.id),
      );
      return reply.header("etag", etagOf(BigInt(delivery.resource_version))).send(delivery);
    },
  );
}

function redeliverRoute(server: GatewayServer, gateway: Gateway): void {
  server.post(
    "/v1/deliveries/:id(^[^:/]+)::redeliver",
    {
      config: { scope: "deliveries:write" },
      schema: {
        operationId: "redeliver",
        summary: "Have a dead one tried again, from the first try on and under the same id",
        tags: ["deliveries"],
        params: DeliveryParams,
        body: Type.Union([Type.Object({}, closed), Type.Null()]),
        response: { 202: DeliveryView, ...problems(400, 401, 403, 404, 409, 413, 415) },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const mutation = {
        schema: "deliveries.redeliver.v1",
        operation: "deliveries.redeliver",
        target: `/v1/deliveries/${id}`,
      };
      const revived = await command(gateway, request, mutation, async (tx) => {
        const { version } = await redeliverPublication(tx, id);
        // What is told stays out of the command's stored answer.
        const { payload: _, ...body } = await getDelivery(tx, id);
        return { status: 202, body, etag: etagOf(version) };
      });
      return sendAnswer(reply, revived);
    },
  );
}
