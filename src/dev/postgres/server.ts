import {
  chownSync,
  closeSync,
  mkdirSync,
  openSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { Client } from "pg";
import { HoldfastError } from "../../core/errors.ts";
import { lockDirectory } from "../directory-lock.mjs";
import { type ServerAccount, serverAccount } from "./account.ts";
import { packagedBinaries, runnableBinaries } from "./binaries.ts";
import {
  type Cluster,
  type ClusterOptions,
  clusterData,
  clusterVersion,
  createCluster,
  dataPath,
  readCluster,
  superuser,
} from "./cluster.ts";
import { type Guarded, startGuarded } from "./guard.ts";
import { readPidFile, sendSignal, settlePrevious } from "./previous.ts";
import { removeSocketDirectory, socketDirectory, socketPort } from "./socket.ts";

/** What `pg` needs to connect; `host` is the folder of the server's socket. */
export interface PostgresConnection {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
  readonly database: string;
}

export interface PostgresOptions {
  /** Ours alone: data, password, log. One process at a time uses it. */
  readonly directory: string;
  readonly log?: (line: string) => void;
  /** Server settings, such as `{ fsync: "off" }` for a throwaway server. */
  readonly settings?: Readonly<Record<string, string>>;
  /**
   * The directory, made with `mkdtemp` below the temporary folder, is removed when the server stops, and also
   * when its owner is killed.
   */
  readonly throwaway?: boolean;
  /** A folder with `bin`, `lib` and `share` of another PostgreSQL than the packaged one. */
  readonly binaries?: string;
  /** How long the server may take until it answers; recovery after a crash is part of it. */
  readonly startDeadlineMs?: number;
}

export interface Postgres {
  /** The superuser's connection, to the database `postgres`. */
  readonly connection: PostgresConnection;
  readonly serverVersion: string;
  readonly pid: number;
  /** Settles when the server has ended, for whatever reason. */
  readonly ended: Promise<void>;
  readonly stop: () => Promise<void>;
}

const logBytesMax = 10 * 1024 * 1024;
const fastStopMs = 20_000;
const immediateStopMs = 5_000;

/**
 * Starts a PostgreSQL on the directory, making it the first time, and repairing what a crash left. The server
 * never outlives its owner: it ends when this process does, also by SIGKILL.
 */
export async function startPostgres(options: PostgresOptions): Promise<Postgres> {
  mkdirSync(options.directory, { recursive: true, mode: 0o700 });
  const directory = realpathSync(options.directory);
  const lock = await lockDirectory(directory, { name: "owner" });
  if ("heldBy" in lock) {
    throw new HoldfastError(
      "directory_in_use",
      `PostgreSQL in ${directory} is in use by process ${lock.heldBy}: stop that first`,
    );
  }
  try {
    return await startLocked({ ...options, directory }, lock.release);
  } catch (error) {
    if (options.throwaway === true) removeDirectory(directory);
    lock.release();
    throw error;
  }
}

async function startLocked(options: PostgresOptions, release: () => void): Promise<Postgres> {
  const { directory } = options;
  const log = options.log ?? (() => undefined);
  const throwaway = options.throwaway === true;
  const account = serverAccount(clusterData(directory));
  // A guard that has lost its owner removes the folder, as the server's account.
  if (throwaway && account !== null) chownSync(directory, account.uid, account.gid);
  const binaries = runnableBinaries(options.binaries ?? packagedBinaries(), account);
  await ensureCluster({ directory, binaries, account, throwaway }, log);
  const cluster = readCluster(directory);
  const ignoredPid = await settlePrevious(cluster.data, log);
  const socket =
    process.platform === "win32" ? null : socketDirectory(directory, account, throwaway || account === null);
  const address =
    socket === null ? { host: "127.0.0.1", port: await freePort() } : { host: socket, port: socketPort };
  const connection = { ...address, user: superuser, password: cluster.password, database: "postgres" };
  const server = startServer({
    options,
    program: binaries.postgres,
    cluster,
    account,
    socket,
    address,
    ignoredPid,
  });
  const clean = () => {
    if (socket !== null) removeSocketDirectory(socket);
    if (throwaway) removeDirectory(directory);
    release();
  };
  try {
    const started = await untilReady(server, cluster.data, connection, options);
    log(`PostgreSQL ${started.serverVersion}: ready`);
    let stopped: Promise<void> | undefined;
    server.keepUsRunning(false);
    const stop = () => (stopped ??= stopServer(server, started.pid).then(clean));
    return { connection, ...started, ended: server.ended.then(() => undefined), stop };
  } catch (error) {
    await stopServer(server, pidIn(readPidFile(cluster.data)));
    if (socket !== null) removeSocketDirectory(socket);
    throw error;
  }
}

async function ensureCluster(options: ClusterOptions, log: (line: string) => void): Promise<void> {
  const { directory, binaries } = options;
  const made = clusterVersion(directory);
  if (made === null) {
    log("PostgreSQL: making a new database cluster (once, a few seconds)");
    await createCluster(options);
  } else if (made !== binaries.version.split(".")[0]) {
    const detail = `${directory} was made by PostgreSQL version ${made}, and this is ${binaries.version}: use another directory`;
    throw new HoldfastError("postgres_unavailable", detail);
  }
}

function startServer(start: {
  readonly options: PostgresOptions;
  readonly program: string;
  readonly cluster: Cluster;
  readonly account: ServerAccount | null;
  readonly socket: string | null;
  readonly address: { readonly host: string; readonly port: number };
  readonly ignoredPid: number | null;
}): Guarded {
  const { options, account, socket } = start;
  const settings: Readonly<Record<string, string>> = {
    listen_addresses: socket === null ? start.address.host : "",
    port: String(start.address.port),
    ...(socket === null ? {} : { unix_socket_directories: socket, unix_socket_permissions: "0700" }),
    password_encryption: "scram-sha-256",
    timezone: "UTC",
    log_timezone: "UTC",
    ...options.settings,
  };
  const throwaway = options.throwaway === true;
  const output = openLog(join(options.directory, "server.log"));
  try {
    return startGuarded({
      program: start.program,
      args: [
        "-D",
        dataPath(start.cluster.data, account),
        ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]),
      ],
      cwd: start.cluster.data,
      account,
      orphanSignal: throwaway ? "QUIT" : "INT",
      removeWhenOrphaned: throwaway ? options.directory : null,
      output,
      // PostgreSQL's own way to be told of a pid in `postmaster.pid` that is no server (pg_ctl uses it too).
      environment: start.ignoredPid === null ? {} : { PG_GRANDPARENT_PID: String(start.ignoredPid) },
    });
  } finally {
    closeSync(output);
  }
}

async function untilReady(
  server: Guarded,
  data: string,
  connection: PostgresConnection,
  options: PostgresOptions,
): Promise<{ readonly serverVersion: string; readonly pid: number }> {
  const deadline = performance.now() + (options.startDeadlineMs ?? 120_000);
  while (server.running() && performance.now() < deadline) {
    if (readPidFile(data)?.split("\n")[7]?.trim() === "ready") {
      const serverVersion = await answer(connection);
      const pid = pidIn(readPidFile(data));
      if (serverVersion !== null && pid !== null) return { serverVersion, pid };
    }
    await wait(20);
  }
  const problem = server.running() ? "does not answer" : "ended at once";
  const detail = `PostgreSQL ${problem}: ${logTail(join(options.directory, "server.log"))}`;
  throw new HoldfastError("postgres_unavailable", detail);
}

function pidIn(pidFile: string | null): number | null {
  const pid = Number.parseInt(pidFile ?? "", 10);
  return Number.isInteger(pid) && pid > 0 ? pid : null;
}

/** The server's version, or null while it does not answer: an old `postmaster.pid` may say "ready" too. */
async function answer(connection: PostgresConnection): Promise<string | null> {
  const client = new Client({ ...connection, connectionTimeoutMillis: 5_000 });
  client.on("error", () => undefined);
  try {
    await client.connect();
    const result = await client.query<{ server_version: string }>("SHOW server_version");
    return result.rows[0]?.server_version ?? null;
  } catch {
    return null;
  } finally {
    await client.end().catch(() => undefined);
  }
}

/** Fast (transactions are aborted, then a checkpoint), then immediate, then by force. */
async function stopServer(server: Guarded, pid: number | null): Promise<void> {
  server.keepUsRunning(true);
  server.signal("SIGINT");
  if (await endsWithin(server, fastStopMs)) return;
  server.signal("SIGQUIT");
  if (await endsWithin(server, immediateStopMs)) return;
  sendSignal("SIGKILL", pid === null ? [] : [pid]);
  await endsWithin(server, immediateStopMs);
}

async function endsWithin(server: Guarded, milliseconds: number): Promise<boolean> {
  const timer = new AbortController();
  const late = wait(milliseconds, false, { signal: timer.signal }).catch(() => false);
  const ended = await Promise.race([server.ended.then(() => true), late]);
  timer.abort();
  return ended;
}

/** Appends, and keeps one older file once the log is large. */
function openLog(path: string): number {
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  if (size > logBytesMax) renameSync(path, `${path}.1`);
  return openSync(path, "a", 0o600);
}

function logTail(path: string): string {
  const lines = readFileSync(path, "utf8").trim().split("\n");
  return `${lines.slice(-8).join("\n")}\n(the whole log: ${path})`;
}

function removeDirectory(directory: string): void {
  rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer().once("error", reject);
    probe.listen(0, "127.0.0.1", () => {
      const address = probe.address();
      probe.close(() => resolve(address !== null && typeof address === "object" ? address.port : 0));
    });
  });
}
