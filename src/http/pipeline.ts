import type { FastifyReply, FastifyRequest } from "fastify";
import { HoldfastError } from "../core/errors.ts";
import { openToken } from "./console-session.ts";
import type { FailedLogins } from "./failed-logins.ts";
import type { GatewayServer } from "./gateway.ts";
import { refuse } from "./listener.ts";
import { authenticate } from "./principal.store.ts";
import { type Authenticator, requireScope } from "./principal.ts";
import { type RateLimiter, rateHeaders } from "./rate-limit.ts";
import { routeTable } from "./route-table.ts";
import { readTraceparent } from "./trace.ts";

const securityHeaders = {
  "cache-control": "no-store",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
} as const;

/**
 * The first half of the pipeline, the same for every route, in this order: header bounds → host → authenticate
 * (unless too many from there failed) → rate → scope. Then the framework takes the limits and the parsing, then `command` the rest. Returns what sets the allowed
 * values of Host; until then, and on servers that are not on loopback, any will do.
 */
export function guard(
  server: GatewayServer,
  options: {
    readonly authenticators: readonly Authenticator[];
    readonly rate: RateLimiter | null;
    readonly logins: FailedLogins | null;
    readonly headerLines: number;
    /** Whether browsers may show what they got at the console's sign-in instead of a token. */
    readonly console: boolean;
  },
): (hosts: ReadonlySet<string>) => void {
  let hosts: ReadonlySet<string> | null = null;
  const routes = routeTable();
  const shownIn = ({ headers }: FastifyRequest): string | undefined =>
    headers.authorization ?? (options.console ? openToken(headers) : undefined);
  server.decorateRequest("principal", null);
  server.decorateRequest("traceparent", null);
  // One more than is taken, so that one too many is seen.
  server.server.maxHeadersCount = options.headerLines + 1;
  server.addHook("onRoute", ({ method, url, config }) => {
    if (config?.scope === undefined) throw new Error(`the route ${String(method)} ${url} names no scope`);
    for (const name of [method].flat()) routes.add(name, url);
  });
  server.addHook("onRequest", async (request, reply) => {
    void reply.headers({ ...securityHeaders, "x-request-id": request.id });
    if (request.raw.rawHeaders.length > 2 * options.headerLines) {
      throw new HoldfastError("headers_too_large", `at most ${options.headerLines} header lines`);
    }
    checkHost(request, hosts);
    request.traceparent = readTraceparent(request.headers.traceparent);
    const shown = shownIn(request);
    if (shown !== undefined) options.logins?.admit(request.ip, shown);
    const { scope, resource = pathId } = request.routeOptions.config;
    if (request.is404 || scope === undefined || scope === "public") return;
    const principal = await authenticate(options.authenticators, shown);
    if (shown !== undefined) options.logins?.proven(shown);
    request.principal = principal;
    if (options.rate !== null) spend(options.rate, principal.id, reply);
    const about = resource(request);
    requireScope(principal, scope, typeof about === "string" ? about : null);
  });
  server.addHook("onResponse", (request, reply, done) => {
    const shown = shownIn(request);
    if (reply.statusCode === 401 && shown !== undefined) options.logins?.failed(request.ip, shown);
    logRequest(request, reply);
    done();
  });
  server.setErrorHandler(refuse);
  server.setNotFoundHandler((request, reply) => {
    const allowed = routes.methodsAt(request.url);
    if (allowed.length === 0) throw new HoldfastError("not_found", "there is nothing at this path");
    void reply.header("allow", allowed.join(", "));
    throw new HoldfastError("method_not_allowed", `this path takes ${allowed.join(", ")}`);
  });
  return (allowed) => {
    hosts = allowed;
  };
}

const pathId = ({ params }: FastifyRequest): unknown =>
  typeof params === "object" && params !== null && "id" in params ? params.id : null;

function spend(rate: RateLimiter, principal: string, reply: FastifyReply): void {
  const verdict = rate.take(principal);
  void reply.headers(rateHeaders(rate.policy, verdict));
  if (verdict.allowed) return;
  const { requests, windowSeconds } = rate.policy;
  throw new HoldfastError("too_many_requests", `at most ${requests} requests in ${windowSeconds} s`, {
    retryAfterSeconds: verdict.retryAfterSeconds,
  });
}

function checkHost(request: FastifyRequest, hosts: ReadonlySet<string> | null): void {
  const host = request.headers.host;
  if (hosts === null || (host !== undefined && hosts.has(host.toLowerCase()))) return;
  throw new HoldfastError("host_not_allowed", "the Host header names another server");
}

/** One line a request. No header, no query, no body: none of them can leak what it doesn't carry. */
function logRequest(request: FastifyRequest, reply: FastifyReply): void {
  const { principal } = request;
  request.log.info(
    {
      method: request.method,
      route: request.routeOptions.url ?? "none",
      status: reply.statusCode,
      ms: Math.round(reply.elapsedTime),
      tenant: principal?.tenant,
      principal: principal?.id,
      trace: request.traceparent?.slice(3, 35),
    },
    "request",
  );
}
