import { readFileSync } from "node:fs";
import { type Client, type ClientOptions, createClient } from "../client/client.ts";
import { httpUrl, token as tokenOf } from "../config/readers.ts";
import type { Config } from "../config.ts";
import { HoldfastError } from "../wire/holdfast-error.ts";
import { contextsPath, readContexts, serverNamed } from "./contexts.ts";
import { developmentServer, stale, whereItIsNow } from "./development-server.ts";
import { UsageError } from "./failures.ts";

export interface ConnectionFlags {
  readonly url?: string | undefined;
  readonly tokenFile?: string | undefined;
  /** A server by its short name. */
  readonly context?: string | undefined;
}

type Server = Pick<ClientOptions, "url" | "token" | "fetch">;

/** A person waits for a refused connection, not for half a minute without a word; whoever follows a job waits out the server's restart. */
const retry: Pick<ClientOptions, "retry" | "streamRetry"> = {
  retry: { triesMax: 4, firstMs: 100, retryAfterMsMax: 5_000 },
  streamRetry: { triesMax: 20, longestMs: 5000 },
};

export function connect(flags: ConnectionFlags, config: Config, directory: string): Client {
  return createClient({ ...serverOf(flags, config, directory), ...retry });
}

/**
 * The nearest word decides: the flags, the environment, the server that `npm start` runs in this checkout, the
 * context in use. A token that belongs to one server is sent to no other.
 */
function serverOf(flags: ConnectionFlags, config: Config, directory: string): Server {
  const token = flags.tokenFile === undefined ? (config.token ?? undefined) : tokenFrom(flags.tokenFile);
  if (flags.url !== undefined && flags.context !== undefined) {
    throw new UsageError("--url and --context both name a server; keep one of them");
  }
  if (flags.context !== undefined) return contextServer(flags.context, config, token);
  const url = flags.url === undefined ? config.url : urlFrom(flags.url);
  // A broken file of a server that isn't asked for is nobody's concern.
  if (url !== null && token !== undefined) return { url, token };
  if (url === null && config.context !== null) return contextServer(config.context, config, token);
  const local = developmentServer(directory);
  if (url !== null) {
    return { url, token: local?.url === url && local.gone === null ? local.token : undefined };
  }
  if (local !== null) {
    // What was meant for it is not for another server, such as that of the context in use.
    if (local.gone !== null) throw stale(local);
    return { url: local.url, token: token ?? local.token, fetch: whereItIsNow(local, token) };
  }
  const { current } = readContexts(contextsPath(config.configHome));
  if (current !== null) return contextServer(current, config, token);
  throw new HoldfastError("unreachable", "no server is configured, and none runs in this checkout");
}

function contextServer(name: string, { configHome }: Config, token: string | undefined): Server {
  const { url, tokenFile } = serverNamed(readContexts(contextsPath(configHome)), name);
  return { url, token: token ?? (tokenFile === null ? undefined : tokenFrom(tokenFile)) };
}

export function urlFrom(text: string): string {
  try {
    return httpUrl(text);
  } catch (error) {
    throw new UsageError(`--url ${error instanceof Error ? error.message : String(error)}`);
  }
}

function tokenFrom(path: string): string {
  try {
    return tokenOf(readFileSync(path, "utf8").trimEnd());
  } catch (error) {
    throw new UsageError(`--token-file ${path}: ${error instanceof Error ? error.message : String(error)}`);
  }
}
