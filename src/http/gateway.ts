import type { IncomingMessage, ServerResponse } from "node:http";
import type { FastifyInstance, FastifyRequest, FastifyTypeProvider, RawServerDefault } from "fastify";
import type { Logger } from "pino";
import type { Static, TSchema } from "typebox";
import type { Doorbell } from "../core/postgres/doorbell.ts";
import type { Database } from "../core/postgres/transition.ts";
import type { Scope } from "../core/tenant.ts";
import type { GatewayLimits } from "./limits.ts";
import type { Principal } from "./principal.ts";
import type { Streams } from "./streams.ts";

declare module "fastify" {
  interface FastifyContextConfig {
    /** What a token needs to be let in; `public` needs none. Every route says it. */
    readonly scope?: Scope | "public";
    /**
     * The resource that a narrowed scope has to name, as the request has it before anything is checked. Left
     * out, the path's `id`; a route about no single resource has none.
     */
    readonly resource?: (request: FastifyRequest) => unknown;
  }
  interface FastifyRequest {
    principal: Principal | null;
    /** W3C trace context, when the request brought one that is well formed. */
    traceparent: string | null;
  }
}

/** Bodies and queries have the types of their schemas: one source for check, type and document (G15). */
export interface SchemaTypes extends FastifyTypeProvider {
  readonly validator: this["schema"] extends TSchema ? Static<this["schema"]> : unknown;
  readonly serializer: this["schema"] extends TSchema ? Static<this["schema"]> : unknown;
}

export type GatewayServer = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  Logger,
  SchemaTypes
>;

/** What routes work with. */
export interface Gateway {
  readonly db: Database;
  /** Rings after commits anywhere: for streams of what is not in the change log. */
  readonly doorbell: Pick<Doorbell, "onRing">;
  readonly limits: GatewayLimits;
  readonly streams: Streams;
  readonly log: Logger;
}

/** The routes of one capability. */
export type Routes = (server: GatewayServer, gateway: Gateway) => void;

/** Whoever called a route that isn't public. */
export function principalOf(request: Pick<FastifyRequest, "principal">): Principal {
  if (request.principal === null) throw new Error("a public route has no principal");
  return request.principal;
}
