import { readFile } from "node:fs/promises";
import { Client, type ClientConfig, Pool } from "pg";
import { HoldfastError } from "../errors.ts";
import { typeParsers } from "./codecs.ts";
import type { ConnectionSettings, PoolLimits } from "./settings.ts";

export type { ConnectionSettings, PoolLimits };

/** The roles of `migrations/roles.sql` that a process can play. A connection plays one of them for its life. */
export type Role =
  | "gateway"
  | "controller"
  | "worker"
  | "producer"
  | "dispatcher"
  | "operator"
  | "retention"
  | "owner";

export const defaultPoolLimits: PoolLimits = {
  connectionsMax: 10,
  statementTimeoutMs: 15_000,
  lockTimeoutMs: 10_000,
  transactionTimeoutMs: 30_000,
  idleInTransactionMs: 15_000,
  connectTimeoutMs: 10_000,
  lifetimeSeconds: 900,
};

const answerGraceMs = 5_000;

function clientConfig(
  settings: ConnectionSettings,
  role: Role,
  limits: PoolLimits,
  name: string,
): ClientConfig {
  const options = {
    role: `holdfast_${role}`,
    // Every statement names its schema; an object of another schema never answers for ours.
    search_path: "pg_catalog,pg_temp",
    TimeZone: "UTC",
    DateStyle: "ISO",
    statement_timeout: limits.statementTimeoutMs,
    lock_timeout: limits.lockTimeoutMs,
    transaction_timeout: limits.transactionTimeoutMs,
    idle_in_transaction_session_timeout: limits.idleInTransactionMs,
    default_transaction_isolation: "read\\ committed",
    // Its few statements are asked many times a second, and take longer to plan than to run.
    ...(role === "dispatcher" ? { plan_cache_mode: "force_generic_plan" } : {}),
  };
  return {
    ...addressOf(settings),
    ...(settings.pooler === undefined
      ? {
          options: Object.entries(options)
            .map(([key, value]) => `-c ${key}=${value}`)
            .join(" "),
        }
      : { user: `${settings.user}_${role}` }),
    application_name: name.slice(0, 63),
    connectionTimeoutMillis: limits.connectTimeoutMs,
    // A connection that is only half there never answers. The server's own limit comes first.
    query_timeout: limits.statementTimeoutMs + answerGraceMs,
    keepAlive: true,
    types: typeParsers,
  };
}

/** Where the driver connects, and as whom. */
export function addressOf(settings: ConnectionSettings): ClientConfig {
  const { host, port, database, user, password, passwordFile, tls } = settings;
  const secret =
    passwordFile === undefined ? password : async () => (await readFile(passwordFile, "utf8")).trimEnd();
  return { host, port, database, user, password: secret, ...(tls === undefined ? {} : { ssl: tls }) };
}

/** The settings of a connection that keeps its session. Throws `invalid_configuration` when there is only a pooler. */
export function directOf(settings: ConnectionSettings): ConnectionSettings {
  if (settings.pooler === undefined) return settings;
  if (settings.direct !== undefined) return directOf(settings.direct);
  throw new HoldfastError(
    "invalid_configuration",
    "a pooler in transaction mode needs a direct connection beside it: HOLDFAST_DATABASE_DIRECT_URL",
  );
}

/** Names no statement: the next transaction may run on a connection that was never told what the name means. */
class NamelessClient extends Client {
  constructor(config?: ClientConfig) {
    super(config);
    const query = this.query.bind(this) as (first: unknown, ...rest: unknown[]) => unknown;
    const nameless = (first: unknown, ...rest: unknown[]) =>
      query(isNamed(first) ? { ...first, name: undefined } : first, ...rest);
    // The driver's overloads can't be told one by one; each is passed on as it came.
    this.query = nameless as typeof this.query;
  }
}

function isNamed(first: unknown): first is { readonly name: string } {
  return typeof first === "object" && first !== null && Object.getPrototypeOf(first) === Object.prototype;
}

/** One connection outside the pools, for what must not wait for one: LISTEN, renewals. */
export async function connect(
  settings: ConnectionSettings,
  role: Role,
  name: string,
  limits = defaultPoolLimits,
  /** What listens from the beginning: a server that hangs up at once does so before `connect` resolves. */
  listen: (client: Client) => void = () => undefined,
): Promise<Client> {
  const client = new Client(clientConfig(directOf(settings), role, limits, name));
  listen(client);
  await client.connect();
  return client;
}

/** The connection pools of one process, one a role, opened when first asked for. */
export interface Pools {
  of(role: Role): Pool;
  readonly settings: ConnectionSettings;
  close(): Promise<void>;
}

export function openPools(options: {
  readonly settings: ConnectionSettings;
  readonly name: string;
  readonly limits?: PoolLimits;
  /** An idle connection broke. The pool replaces it; this is for the log. */
  readonly onError?: (error: Error) => void;
}): Pools {
  const limits = options.limits ?? defaultPoolLimits;
  const pools = new Map<Role, Pool>();
  let closing = false;
  return {
    settings: options.settings,
    of(role) {
      // A loop that outlives its process's foundation must not open connections that nobody will close.
      if (closing) throw new HoldfastError("unavailable", "the connection pools are closed");
      let pool = pools.get(role);
      if (pool === undefined) {
        pool = new Pool({
          ...clientConfig(options.settings, role, limits, `${options.name}/${role}`),
          ...(options.settings.pooler === undefined ? {} : { Client: NamelessClient }),
          max: limits.connectionsMax,
          idleTimeoutMillis: 60_000,
          maxLifetimeSeconds: limits.lifetimeSeconds,
        });
        pool.on("error", (error) => {
          if (!closing) options.onError?.(error);
        });
        pools.set(role, pool);
      }
      return pool;
    },
    async close() {
      closing = true;
      const open = [...pools.values()];
      pools.clear();
      await Promise.all(open.map((pool) => pool.end()));
    },
  };
}
