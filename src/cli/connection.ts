import { readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { type Client, type ClientOptions, createClient } from "../client/client.ts";
import { httpUrl, token as tokenOf } from "../config/readers.ts";
import type { Config } from "../config.ts";
import { HoldfastError } from "../wire/holdfast-error.ts";
import { contextsPath, readContexts, serverNamed } from "./contexts.ts";
import { UsageError } from "./failures.ts";

export interface ConnectionFlags {
  readonly url?: string | undefined;
  readonly tokenFile?: string | undefined;
  /** A server by its short name. */
  readonly context?: string | undefined;
}

interface Server {
  readonly url: string;
  readonly token: string | undefined;
}

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
  if (url !== null) return { url, token: local?.url === url ? local.token : undefined };
  if (local !== null) return { url: local.url, token: token ?? local.token };
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

/**
 * What a running development server left for us in `.holdfast/dev.json`, here or in a directory above. A file
 * of somebody else's could send us, and what we submit, to their server: it has to be ours, closed to others,
 * and name a loopback address.
 */
function developmentServer(directory: string): Server | null {
  for (let at = directory; ; at = dirname(at)) {
    const found = readDevelopmentFile(join(at, ".holdfast", "dev.json"));
    if (found !== null) return found;
    if (dirname(at) === at) return null;
  }
}

function readDevelopmentFile(path: string): Server | null {
  let text: string;
  try {
    const { uid, mode } = statSync(path);
    const ours = process.getuid === undefined || (uid === process.getuid() && (mode & 0o077) === 0);
    if (!ours) throw new UsageError(`${path} is not used: it belongs to somebody else or is open to others`);
    text = readFileSync(path, "utf8");
  } catch (error) {
    if (error instanceof UsageError) throw error;
    return null;
  }
  try {
    const { url, token } = JSON.parse(text) as { readonly url?: unknown; readonly token?: unknown };
    const address = httpUrl(String(url));
    const { hostname } = new URL(address);
    if (!["127.0.0.1", "[::1]", "localhost"].includes(hostname))
      throw new Error("its url is not on loopback");
    return { url: address, token: tokenOf(String(token)) };
  } catch (error) {
    throw new UsageError(
      `${path} is not valid: ${error instanceof Error ? error.message : String(error)}`,
      "Start the server again, or remove the file.",
    );
  }
}
