import { once } from "node:events";
import { type RequestListener, type Server, type ServerOptions, STATUS_CODES } from "node:http";
import { createServer, type Socket } from "node:net";
import fastify, { type FastifyReply, type FastifyRequest, LogController } from "fastify";
import type { Logger } from "pino";
import { HoldfastError } from "../core/errors.ts";
import { uuidv7 } from "../core/ids.ts";
import type { GatewayServer } from "./gateway.ts";
import { asHoldfastError, clientFault, problemOf, problemType, rawProblem } from "./problem.ts";
import { compileSchema } from "./validation.ts";

/** What every listener of Holdfast has in common: strict schemas, problem documents, bounds on all that comes in. */
export interface ListenerOptions {
  readonly log: Logger;
  readonly bodyBytes: number;
  readonly headerBytes?: number;
  /** For a whole request to arrive, headers and body. */
  readonly requestMs?: number;
  /** For a socket on which nothing moves. */
  readonly idleSocketMs?: number;
  /** Makes the server where something else is served beside the routes. */
  readonly serve?: (handler: RequestListener, settings: ServerOptions) => Server;
}

const requestIdPattern = /^[A-Za-z0-9._:-]{1,128}$/;

export function createListener(options: ListenerOptions): GatewayServer {
  const requestMs = options.requestMs ?? 15_000;
  const http = {
    maxHeaderSize: options.headerBytes ?? 16_384,
    headersTimeout: requestMs,
    // How often Node looks for requests that are overdue.
    connectionsCheckingInterval: Math.min(1_000, Math.ceil(requestMs / 4)),
  };
  const { serve } = options;
  const server = fastify({
    loggerInstance: options.log,
    // Listeners write their own line, which carries no URL.
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: "request_id" }),
    bodyLimit: options.bodyBytes,
    requestTimeout: requestMs,
    connectionTimeout: options.idleSocketMs ?? 75_000,
    exposeHeadRoutes: true,
    // What arrives on an open connection while the listener drains is answered, and told that it is the last.
    return503OnClosing: false,
    requestIdHeader: false,
    routerOptions: { maxParamLength: 256 },
    genReqId: (request) => {
      const given = request.headers["x-request-id"];
      return typeof given === "string" && requestIdPattern.test(given) ? given : uuidv7();
    },
    ...(serve === undefined
      ? { http }
      : { serverFactory: (handler: RequestListener) => serve(handler, http) }),
    clientErrorHandler: answerRaw,
  }) as unknown as GatewayServer; // The type provider adds types alone.
  connections.set(server, new Set());
  server.server.on("connection", (socket) => {
    connections.get(server)?.add(socket);
    socket.once("close", () => connections.get(server)?.delete(socket));
  });
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

/** Every refusal is a problem document. */
export function refuse(fault: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const error = asHoldfastError(fault);
  if (error.code === "internal") request.log.error({ err: fault }, "request failed");
  void reply.code(error.entry.status).type(problemType);
  if (error.code === "unauthenticated") void reply.header("www-authenticate", 'Bearer realm="holdfast"');
  if (error.retryAfterSeconds !== null) void reply.header("retry-after", String(error.retryAfterSeconds));
  // The rest of a body that nobody reads would be taken for the next request's wait.
  if (!request.raw.complete) void reply.header("connection", "close");
  // As bytes: the media type has no charset parameter, and the framework would add one to text.
  return reply.send(Buffer.from(JSON.stringify(problemOf(error, request.id))));
}

/** Throws `port_taken`. */
export async function listen(
  server: GatewayServer,
  { host, port }: { readonly host: string; readonly port: number },
): Promise<void> {
  try {
    await server.listen({ host, port });
  } catch (error) {
    await server.close();
    throw refusedAddress(error, host, port);
  }
}

/** Throws `port_taken` now instead of after work that would be for nothing. It may still be taken meanwhile. */
export async function assertPortFree({
  host,
  port,
}: {
  readonly host: string;
  readonly port: number;
}): Promise<void> {
  const trial = createServer();
  try {
    trial.listen({ host, port });
    await once(trial, "listening");
  } catch (error) {
    throw refusedAddress(error, host, port);
  } finally {
    trial.close();
  }
}

function refusedAddress(error: unknown, host: string, port: number): unknown {
  return error instanceof Error && "code" in error && error.code === "EADDRINUSE"
    ? new HoldfastError("port_taken", `${host}:${port} is in use by another process`, { cause: error })
    : error;
}

const drainDefaultMs = 10_000;
const silentMs = 100;
const connections = new WeakMap<GatewayServer, Set<Socket>>();

/**
 * Lets what is under way end, for a while. A connection on which nothing was ever asked, such as one that a client has
 * opened in advance, counts as busy for Node, so it is closed here.
 */
export async function closeGracefully(server: GatewayServer, drainMs = drainDefaultMs): Promise<void> {
  const hurry = setTimeout(() => server.server.closeAllConnections(), drainMs);
  const silent = setInterval(() => {
    for (const socket of connections.get(server) ?? []) if (socket.bytesRead === 0) socket.destroy();
  }, silentMs);
  await server.close();
  clearInterval(silent);
  clearTimeout(hurry);
}
