import swagger from "@fastify/swagger";
import { ProblemDocument } from "../wire/problem.ts";
import type { GatewayServer } from "./gateway.ts";
import { problemType } from "./problem.ts";

/** The OpenAPI 3.1 document comes from the schemas that the routes check with (G15). */
export async function describeApi(server: GatewayServer, release: string): Promise<void> {
  await server.register(swagger, {
    openapi: {
      openapi: "3.1.0",
      info: {
        title: "Holdfast",
        version: release,
        description: "Every error is a problem document (RFC 9457) whose `code` is stable.",
      },
      tags: [
        { name: "jobs", description: "Builds: a job's phased attempts, their output and artifacts" },
        { name: "watch", description: "The change stream" },
        { name: "server", description: "Health and this document" },
      ],
      components: { securitySchemes: { bearer: { type: "http", scheme: "bearer" } } },
      security: [{ bearer: [] }],
    },
  });
}

export function openapiRoute(server: GatewayServer): void {
  server.get(
    "/openapi.json",
    { config: { scope: "public" }, schema: { operationId: "openapi", tags: ["server"], security: [] } },
    (_request, reply) => reply.type("application/json; charset=utf-8").send(server.swagger()),
  );
}

/** The problem documents that a route can answer with. */
export function problems(...statuses: readonly number[]): Record<number, object> {
  return Object.fromEntries(
    statuses.map((status) => [
      status,
      { description: "A problem", content: { [problemType]: { schema: ProblemDocument } } },
    ]),
  );
}
