import { Type } from "typebox";
import { getCommand, listCommands } from "../core/command-log.store.ts";
import { view } from "../core/postgres/transition.ts";
import { CommandView } from "../wire/command.ts";
import { Uuid } from "../wire/job.ts";
import { type Gateway, type GatewayServer, principalOf } from "./gateway.ts";
import { problems } from "./openapi.ts";
import { decodePageToken, encodePageToken, PageLimit, PageToken, pageLimitOf } from "./page-token.ts";

const closed = { additionalProperties: false } as const;
const word = (maxLength: number) =>
  Type.Optional(Type.String({ minLength: 1, maxLength, pattern: "^[^\\u0000]*$" }));

const CommandQuery = Type.Object(
  {
    /** The name of who asked. */
    principal: word(63),
    operation: word(63),
    target: word(1024),
    limit: Type.Optional(PageLimit),
    page_token: Type.Optional(PageToken),
  },
  closed,
);
const CommandPage = Type.Object(
  { items: Type.Array(CommandView), next_page_token: Type.Union([Type.String(), Type.Null()]) },
  { ...closed, title: "CommandPage" },
);

/** The audit: who asked for what, when, and what came of it. */
export function commandRoutes(server: GatewayServer, gateway: Gateway): void {
  server.get(
    "/v1/commands",
    {
      config: { scope: "commands:read" },
      schema: {
        operationId: "listCommands",
        summary: "Mutations that were committed, newest first, without what was sent",
        tags: ["commands"],
        querystring: CommandQuery,
        response: { 200: CommandPage, ...problems(400, 401, 403) },
      },
    },
    ({ query, principal: caller }) => {
      const { tenant } = principalOf({ principal: caller });
      const { principal = null, operation = null, target = null } = query;
      const filter = { principal, operation, target };
      const bound = { list: "commands", tenant, ...filter };
      const after = query.page_token === undefined ? null : decodePageToken(bound, query.page_token);
      const limit = pageLimitOf(query.limit, gateway.limits);
      return view(gateway.db, { role: "gateway", tenant, name: "listCommands" }, async (tx) => {
        const { commands, next } = await listCommands(tx, filter, { after, limit });
        return { items: [...commands], next_page_token: next === null ? null : encodePageToken(bound, next) };
      });
    },
  );
  server.get(
    "/v1/commands/:id",
    {
      config: { scope: "commands:read" },
      schema: {
        operationId: "getCommand",
        summary: "One of them",
        tags: ["commands"],
        params: Type.Object({ id: Uuid }, closed),
        response: { 200: CommandView, ...problems(401, 403, 404) },
      },
    },
    ({ params, principal }) => {
      const { tenant } = principalOf({ principal });
      return view(gateway.db, { role: "gateway", tenant, name: "getCommand" }, (tx) =>
        getCommand(tx, params.id),
      );
    },
  );
}
