import { STATUS_CODES } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import fastify, { LogController } from "fastify";
import { type Logger, pino } from "pino";
import { HoldfastError } from "../core/errors.ts";
import { uuidv7 } from "../core/ids.ts";
import type { Doorbell } from "../core/postgres/doorbell.ts";
import type { Database } from "../core/postgres/transition.ts";
import type { ChangeReader } from "../core/watch.ts";
import { acceptJson } from "./body.ts";
import { openFeeds } from "./feed.ts";
import type { Gateway, GatewayServer, Routes } from "./gateway.ts";
import { healthRoutes, type LoopProgress } from "./health.ts";
import { defaultLimits, type GatewayLimits } from "./limits.ts";
import { describeApi, openapiRoute } from "./openapi.ts";
import { guard } from "./pipeline.ts";
import { principalOf as lookUpPrincipal } from "./principal.store.ts";
import { clientFault, rawProblem } from "./problem.ts";
import { trackStreams } from "./streams.ts";
import { compileSchema } from "./validation.ts";
import { watchRoutes } from "./watch.ts";

export interface GatewayOptions {
  readonly db: Database;
  readonly reader: Pick<ChangeReader, "subscribe" | "position">;
  readonly doorbell: Pick<Doorbell, "onRing">;
  /** What each capability serves. */
  readonly routes: readonly Routes[];
  readonly host: string;
  /** 0 takes any free one. */
  readonly port: number;
  readonly release: string;
  /** The installation that the store has to belong to; null where it was checked already. */
  readonly installation?: string | null;
  /** Further names by which clients reach a loopback server. */
  readonly hostNames?: readonly string[];
  readonly limits?: Partial<GatewayLimits>;
  readonly log?: Logger;
  readonly progress?: () => readonly LoopProgress[];
  /** How long `close` waits for what is under way. */
  readonly drainMs?: number;
}

export interface RunningGateway {
  /** `http://host:port`, as reached from this machine. */
  readonly address: string;
  readonly port: number;
  readonly openapi: () => object;
  readonly openStreams: () => number;
  close(): Promise<void>;
}

const requestIdPattern = /^[A-Za-z0-9._:-]{1,128}$/;
const drainDefaultMs = 10_000;

/** Throws `port_taken`. */
export async function startGateway(options: GatewayOptions): Promise<RunningGateway> {
  const limits = { ...defaultLimits, ...options.limits };
  const log = options.log ?? pino({ level: "silent" });
  const streams = trackStreams({
    perPrincipal: limits.streamsPerPrincipal,
    checkMs: limits.tokenCheckMs,
    lookUp: (hash) => lookUpPrincipal(options.db, hash),
    onError: (err) => log.error({ err }, "tokens of open streams can't be checked"),
  });
  const gateway: Gateway = { db: options.db, doorbell: options.doorbell, limits, streams, log };
  const server = createServer(limits, log);
  const allowHosts = guard(server, options.db);
  acceptJson(server, limits);
  await describeApi(server, options.release);
  healthRoutes(server, {
    db: options.db,
    installation: options.installation ?? null,
    progress: options.progress ?? (() => []),
  });
  openapiRoute(server);
  const feeds = openFeeds({
    db: options.db,
    reader: options.reader,
    batch: limits.watchBatch,
    retryMs: limits.reconnectMs,
    onError: (err) => log.error({ err }, "changes can't be read"),
  });
  watchRoutes(server, { ...gateway, feeds });
  for (const routes of options.routes) routes(server, gateway);
  // Live streams would otherwise hold the close for ever.
  server.addHook("preClose", (done) => {
    streams.close();
    done();
  });
  await listen(server, options);
  const { port } = server.server.address() as AddressInfo;
  if (isLoopback(options.host)) allowHosts(hostNames(options, port));
  return {
    address: `http://${options.host.includes(":") ? `[${options.host}]` : options.host}:${port}`,
    port,
    openapi: () => server.swagger(),
    openStreams: () => streams.open,
    async close() {
      const hurry = setTimeout(() => server.server.closeAllConnections(), options.drainMs ?? drainDefaultMs);
      await server.close();
      clearTimeout(hurry);
    },
  };
}

function createServer(limits: GatewayLimits, log: Logger): GatewayServer {
  const server = fastify({
    loggerInstance: log,
    // The pipeline writes its own line, which carries no URL.
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: "request_id" }),
    bodyLimit: limits.bodyBytes,
    requestTimeout: limits.requestMs,
    connectionTimeout: limits.idleSocketMs,
    exposeHeadRoutes: true,
    requestIdHeader: false,
    routerOptions: { maxParamLength: 256 },
    genReqId: (request) => {
      const given = request.headers["x-request-id"];
      return typeof given === "string" && requestIdPattern.test(given) ? given : uuidv7();
    },
    http: {
      maxHeaderSize: limits.headerBytes,
      headersTimeout: limits.requestMs,
      // How often Node looks for requests that are overdue.
      connectionsCheckingInterval: Math.min(1_000, Math.ceil(limits.requestMs / 4)),
    },
    clientErrorHandler: answerRaw,
  }) as unknown as GatewayServer; // The type provider adds types alone.
  server.setValidatorCompiler(({ schema, httpPart }) => compileSchema({ schema, httpPart }));
  // The declared responses are for the document; what is sent is what the handler gave.
  server.setSerializerCompiler(() => (value) => JSON.stringify(value));
  return server;
}

/** For what Node's parser refuses: there is no request, but an answer in the same form. */
function answerRaw(fault: { readonly code?: string }, socket: Socket): void {
  if (fault.code === "ECONNRESET" || !socket.writable) {
    socket.destroy();
    return;
  }
  const error = clientFault(fault);
  socket.end(rawProblem(error, uuidv7(), STATUS_CODES[error.entry.status] ?? "Error"));
}

async function listen(server: GatewayServer, { host, port }: GatewayOptions): Promise<void> {
  try {
    await server.listen({ host, port });
  } catch (error) {
    await server.close();
    if (error instanceof Error && "code" in error && error.code === "EADDRINUSE") {
      throw new HoldfastError("port_taken", `${host}:${port} is in use by another process`, { cause: error });
    }
    throw error;
  }
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || host.startsWith("127.");
}

/** A page that a browser was told lives at 127.0.0.1 still sends its own name as Host: refused. */
function hostNames({ hostNames = [] }: GatewayOptions, port: number): ReadonlySet<string> {
  const names = ["localhost", "127.0.0.1", "[::1]", ...hostNames];
  return new Set(names.flatMap((name) => (port === 80 ? [name, `${name}:80`] : [`${name}:${port}`])));
}
