import type { AddressInfo } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { type Logger, pino } from "pino";
import type { Doorbell } from "../core/postgres/doorbell.ts";
import type { Database } from "../core/postgres/transition.ts";
import type { ChangeReader } from "../core/watch.ts";
import { acceptJson } from "./body.ts";
import { commandRoutes } from "./commands.ts";
import { type ConsoleFiles, consoleRoutes } from "./console.ts";
import { failedLogins } from "./failed-logins.ts";
import { openFeeds } from "./feed.ts";
import type { Gateway, GatewayServer, Routes } from "./gateway.ts";
import { healthRoutes, type LoopProgress } from "./health.ts";
import { defaultLimits, type GatewayLimits } from "./limits.ts";
import { closeGracefully, createListener, listen } from "./listener.ts";
import { describeApi, documentOf, openapiRoute } from "./openapi.ts";
import { guard } from "./pipeline.ts";
import { isLive, tokenAuthenticator } from "./principal.store.ts";
import type { Authenticator } from "./principal.ts";
import { rateLimiter } from "./rate-limit.ts";
import { type Streams, trackStreams } from "./streams.ts";
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
  /** Besides our own tokens. */
  readonly authenticators?: readonly Authenticator[];
  readonly limits?: Partial<GatewayLimits>;
  readonly log?: Logger;
  readonly progress?: () => readonly LoopProgress[];
  /** The operators' page; left out, there is none. Asked for its files when somebody opens it. */
  readonly console?: (() => Promise<ConsoleFiles>) | undefined;
  /** How long `close` goes on serving, no longer ready, until nothing new is sent here any more (G13). */
  readonly drainDelayMs?: number;
  /** How long it waits then for what is under way. */
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

/** Throws `port_taken`. */
export async function startGateway(options: GatewayOptions): Promise<RunningGateway> {
  const { server, streams, allowHosts, drain } = await buildGateway(options);
  await listen(server, options);
  const { port } = server.server.address() as AddressInfo;
  if (isLoopback(options.host)) allowHosts(hostNames(options, port));
  return {
    address: `http://${options.host.includes(":") ? `[${options.host}]` : options.host}:${port}`,
    port,
    openapi: () => documentOf(server),
    openStreams: () => streams.open,
    async close() {
      drain();
      await delay(options.drainDelayMs ?? 0);
      await closeGracefully(server, options.drainMs);
    },
  };
}

/** The OpenAPI document of a gateway that never listens and never asks its database. */
export async function describeGateway(options: Omit<GatewayOptions, "host" | "port">): Promise<object> {
  const { server } = await buildGateway(options);
  await server.ready();
  const document = documentOf(server);
  await server.close();
  return document;
}

async function buildGateway(options: Omit<GatewayOptions, "host" | "port">): Promise<{
  readonly server: GatewayServer;
  readonly streams: Streams;
  readonly allowHosts: (hosts: ReadonlySet<string>) => void;
  /** From now on it is not ready. */
  readonly drain: () => void;
}> {
  const limits = { ...defaultLimits, ...options.limits };
  const log = options.log ?? pino({ level: "silent" });
  const authenticators = [tokenAuthenticator(options.db), ...(options.authenticators ?? [])];
  const streams = trackStreams({
    perPrincipal: limits.streamsPerPrincipal,
    checkMs: limits.tokenCheckMs,
    isLive: (principal) => isLive(authenticators, principal),
    onError: (err) => log.error({ err }, "tokens of open streams can't be checked"),
  });
  const gateway: Gateway = { db: options.db, doorbell: options.doorbell, limits, streams, log };
  const server = createListener({ log, ...limits });
  const allowHosts = guard(server, {
    authenticators,
    rate: limits.rate === null ? null : rateLimiter(limits.rate, limits.rateKeys),
    logins: limits.failedLogins === null ? null : failedLogins(limits.failedLogins, limits.failedLoginKeys),
    headerLines: limits.headerLines,
    console: options.console !== undefined,
  });
  acceptJson(server, limits);
  await describeApi(server, options.release);
  let draining = false;
  healthRoutes(server, {
    db: options.db,
    installation: options.installation ?? null,
    progress: () => [...(options.progress?.() ?? []), ...(draining ? [drained] : [])],
  });
  openapiRoute(server);
  if (options.console !== undefined) consoleRoutes(server, { files: options.console, authenticators });
  const feeds = openFeeds({
    db: options.db,
    reader: options.reader,
    batch: limits.watchBatch,
    retryMs: limits.reconnectMs,
    onError: (err) => log.error({ err }, "changes can't be read"),
  });
  watchRoutes(server, { ...gateway, feeds });
  commandRoutes(server, gateway);
  for (const routes of options.routes) routes(server, gateway);
  // Live streams would otherwise hold the close for ever.
  server.addHook("preClose", (done) => {
    streams.close();
    done();
  });
  const drain = () => {
    draining = true;
  };
  return { server, streams, allowHosts, drain };
}

const drained: LoopProgress = {
  name: "listener",
  progressing: false,
  detail: "it is about to close",
};

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || host.startsWith("127.");
}

/** A page that a browser was told lives at 127.0.0.1 still sends its own name as Host: refused. */
function hostNames({ hostNames = [] }: Pick<GatewayOptions, "hostNames">, port: number): ReadonlySet<string> {
  const names = ["localhost", "127.0.0.1", "[::1]", ...hostNames];
  return new Set(names.flatMap((name) => (port === 80 ? [name, `${name}:80`] : [`${name}:${port}`])));
}
