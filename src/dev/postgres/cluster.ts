import { randomBytes } from "node:crypto";
import {
  chownSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { HoldfastError } from "../../core/errors.ts";
import type { ServerAccount } from "./account.ts";
import type { Binaries } from "./binaries.ts";
import { startGuarded } from "./guard.ts";

/** The files of one PostgreSQL: its data, and the password of its superuser. */
export interface Cluster {
  readonly data: string;
  readonly password: string;
}

export const superuser = "postgres";

const unfinishedPrefix = "cluster.new-";
const unfinishedEndsWithinMs = 10_000;

export function clusterData(directory: string): string {
  return join(directory, "cluster", "data");
}

/** The major version that made the cluster, or null when there is none. */
export function clusterVersion(directory: string): string | null {
  const path = join(clusterData(directory), "PG_VERSION");
  return existsSync(path) ? readFileSync(path, "utf8").trim() : null;
}

export function readCluster(directory: string): Cluster {
  const password = readFileSync(join(directory, "cluster", "password"), "utf8").trim();
  return { data: clusterData(directory), password };
}

export interface ClusterOptions {
  readonly directory: string;
  readonly binaries: Binaries;
  readonly account: ServerAccount | null;
  /** A throwaway cluster is not flushed to disk, and goes, with its directory, when its owner is killed. */
  readonly throwaway: boolean;
}

/**
 * Runs initdb under another name and renames the whole at the end, so that a cluster which exists is complete:
 * one that a SIGKILL cut short is removed by the next start.
 */
export async function createCluster(options: ClusterOptions): Promise<void> {
  const { directory, account } = options;
  await removeUnfinished(directory);
  const fresh = mkdtempSync(join(directory, unfinishedPrefix));
  const data = join(fresh, "data");
  const passwordFile = join(fresh, "password");
  mkdirSync(data, { mode: 0o700 });
  writeFileSync(passwordFile, randomBytes(24).toString("base64url"), { mode: 0o600 });
  // initdb opens the password by its descriptor, and may do so only with a file of its own account.
  if (account !== null) {
    for (const path of [fresh, data, passwordFile]) chownSync(path, account.uid, account.gid);
  }
  const status = await runInitdb(options, data, passwordFile, join(directory, "initdb.log"));
  if (status !== 0) {
    const output = readFileSync(join(directory, "initdb.log"), "utf8").trim();
    rmSync(fresh, { recursive: true, force: true, maxRetries: 5 });
    throw new HoldfastError("postgres_unavailable", `initdb failed: ${initdbAdvice(output)}`);
  }
  rmSync(join(directory, "cluster"), { recursive: true, force: true });
  renameSync(fresh, join(directory, "cluster"));
  rmSync(join(directory, "initdb.log"), { force: true });
}

async function runInitdb(
  options: ClusterOptions,
  data: string,
  passwordFile: string,
  logFile: string,
): Promise<number | null> {
  const output = openSync(logFile, "w", 0o600);
  const password = openSync(passwordFile, "r");
  try {
    return await startGuarded({
      program: options.binaries.initdb,
      args: [
        `--pgdata=${dataPath(data, options.account)}`,
        "--no-locale",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--encoding=UTF8",
        `--username=${superuser}`,
        "--auth=scram-sha-256",
        process.platform === "win32" ? `--pwfile=${passwordFile}` : "--pwfile=/dev/fd/4",
        "--data-checksums",
        "--no-instructions",
        ...(options.throwaway ? ["--no-sync"] : []),
      ],
      cwd: data,
      account: options.account,
      orphanSignal: "INT",
      removeWhenOrphaned: options.throwaway ? options.directory : null,
      output,
      files: [password],
    }).ended;
  } finally {
    closeSync(output);
    closeSync(password);
  }
}

/**
 * How the server is told where its data is. Its account may be unable to walk the path (a checkout below
 * root's home); it can always use the working directory that it was started in.
 */
export function dataPath(data: string, account: ServerAccount | null): string {
  return account !== null && existsSync("/proc/self/cwd") ? "/proc/self/cwd" : data;
}

/** An initdb whose owner was killed is being ended by its guard, and may still write for a moment. */
async function removeUnfinished(directory: string): Promise<void> {
  const deadline = performance.now() + unfinishedEndsWithinMs;
  for (;;) {
    const [unfinished] = readdirSync(directory).filter((entry) => entry.startsWith(unfinishedPrefix));
    if (unfinished === undefined) return;
    const problem = remove(join(directory, unfinished));
    if (problem !== null && performance.now() > deadline) throw problem;
    await wait(20);
  }
}

function remove(path: string): Error | null {
  try {
    rmSync(path, { recursive: true, force: true });
    return existsSync(path) ? new HoldfastError("postgres_unavailable", `${path} cannot be removed`) : null;
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}

function initdbAdvice(output: string): string {
  return output.includes("could not look up effective user ID")
    ? `${output}\nThe user that runs this needs an entry in /etc/passwd.`
    : output;
}
