import swagger from "@fastify/swagger";
import { Type } from "typebox";
import { ProblemDocument } from "../wire/problem.ts";
import type { GatewayServer } from "./gateway.ts";
import { finishDocument } from "./openapi-document.ts";
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
        license: { name: "Apache-2.0", identifier: "Apache-2.0" },
      },
      tags: [
        { name: "jobs", description: "Builds: a job's phased attempts, their output and artifacts" },
        { name: "deliveries", description: "What sessions tell their destinations, and what became of it" },
        { name: "agents", description: "Templates that sessions are begun with" },
        { name: "sessions", description: "Conversations: their activations, revisions and permissions" },
        {
          name: "work",
          description: "Deferred effects: items, their attempts, and what operators do about them",
        },
        { name: "tenants", description: "Tenants, for operators of the installation" },
        { name: "watch", description: "The change stream" },
        { name: "commands", description: "Who asked for what, and what came of it" },
        { name: "server", description: "Health and this document" },
      ],
      components: { securitySchemes: { bearer: { type: "http", scheme: "bearer" } } },
      security: [{ bearer: [] }],
    },
  });
}

/** What `GET /openapi.json` serves, and `docs/reference/openapi.json` keeps. */
export function documentOf(server: GatewayServer): object {
  return finishDocument(server.swagger());
}

export function openapiRoute(server: GatewayServer): void {
  let document: object | undefined;
  server.get(
    "/openapi.json",
    {
      config: { scope: "public" },
      schema: {
        operationId: "openapi",
        summary: "This document",
        tags: ["server"],
        security: [],
        response: {
          200: {
            description: "OpenAPI 3.1",
            content: {
              "application/json": {
                schema: Type.Unsafe<unknown>({ type: "object", additionalProperties: true }),
              },
            },
          },
        },
      },
    },
    (_request, reply) => {
      document ??= documentOf(server);
      return reply.type("application/json; charset=utf-8").send(document);
    },
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
