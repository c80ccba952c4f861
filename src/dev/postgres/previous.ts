import { existsSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { HoldfastError } from "../../core/errors.ts";
import { processIdentity } from "../directory-lock.mjs";

/** What an earlier server left in its data directory. */
export type Leftover =
  | { readonly kind: "none" }
  /** A power failure left `postmaster.pid` without content; PostgreSQL refuses to start over it. */
  | { readonly kind: "unreadable" }
  /** The pid is dead, or belongs to a process that is not our server; PostgreSQL refuses a reused one. */
  | { readonly kind: "stale"; readonly pid: number }
  | { readonly kind: "running"; readonly pid: number };

/** `servers` are the live PostgreSQL processes that work in this data directory. */
export function leftover(pidFile: string | null, servers: readonly number[]): Leftover {
  const pid = pidFile === null ? Number.NaN : Number.parseInt(pidFile.split("\n")[0] ?? "", 10);
  if (Number.isInteger(pid) && servers.includes(pid)) return { kind: "running", pid };
  const [first] = servers;
  if (first !== undefined) return { kind: "running", pid: first };
  if (pidFile === null) return { kind: "none" };
  return Number.isInteger(pid) && pid > 0 ? { kind: "stale", pid } : { kind: "unreadable" };
}

const stopSteps = [
  ["SIGINT", 30_000],
  ["SIGQUIT", 10_000],
  ["SIGKILL", 5_000],
] as const;

/**
 * Makes the data directory ready for a new server: an old one, whose owner was killed, is stopped, and what
 * keeps PostgreSQL from starting is put right. Our own lock on the directory is held meanwhile. Gives the pid
 * in `postmaster.pid` that PostgreSQL must not take for a running server. That file is kept where it can be:
 * by it PostgreSQL finds backends that outlived their server.
 */
export async function settlePrevious(data: string, log: (line: string) => void): Promise<number | null> {
  for (const [signal, deadlineMs] of stopSteps) {
    const found = leftover(readPidFile(data), serversIn(data));
    switch (found.kind) {
      case "none":
        return null;
      case "stale":
        return found.pid;
      case "unreadable":
        log("PostgreSQL: removing an empty postmaster.pid");
        rmSync(join(data, "postmaster.pid"), { force: true });
        return null;
      case "running":
        log(`PostgreSQL: stopping the server that an earlier run left (pid ${found.pid})`);
        sendSignal(signal, signal === "SIGKILL" ? serversIn(data) : [found.pid]);
        await waitUntilGone(data, deadlineMs);
    }
  }
  const left = serversIn(data);
  if (left.length === 0) return null;
  throw new HoldfastError(
    "postgres_unavailable",
    `A PostgreSQL on ${data} does not stop (pid ${left.join(", ")})`,
  );
}

async function waitUntilGone(data: string, deadlineMs: number): Promise<void> {
  const deadline = performance.now() + deadlineMs;
  while (serversIn(data).length > 0 && performance.now() < deadline) await wait(50);
}

export function sendSignal(signal: NodeJS.Signals, pids: readonly number[]): void {
  for (const pid of pids) {
    try {
      process.kill(pid, signal);
    } catch {
      // It ended by itself.
    }
  }
}

export function readPidFile(data: string): string | null {
  try {
    return readFileSync(join(data, "postmaster.pid"), "utf8");
  } catch {
    return null;
  }
}

/**
 * The PostgreSQL processes of this data directory: all of them work in it. Without /proc only the one that
 * `postmaster.pid` names can be found, and is taken for a server when its socket's lock file names it too.
 */
function serversIn(data: string): number[] {
  if (!existsSync("/proc/self/cwd")) return serverByPidFile(data);
  const wanted = statSync(data);
  return readdirSync("/proc")
    .filter((entry) => /^\d+$/.test(entry))
    .filter((pid) => isServerProcess(pid) && worksIn(pid, wanted))
    .map(Number)
    .sort((a, b) => a - b);
}

function isServerProcess(pid: string): boolean {
  try {
    return /^\d+ \(postgres\) [^ZX]/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

function worksIn(pid: string, wanted: { readonly dev: number; readonly ino: number }): boolean {
  try {
    const cwd = statSync(`/proc/${pid}/cwd`);
    return cwd.dev === wanted.dev && cwd.ino === wanted.ino;
  } catch {
    return false;
  }
}

function serverByPidFile(data: string): number[] {
  const [first, , , port, socket] = readPidFile(data)?.split("\n") ?? [];
  const pid = Number.parseInt(first ?? "", 10);
  if (!Number.isInteger(pid) || processIdentity(pid) === null) return [];
  try {
    const lock = readFileSync(join(socket ?? "", `.s.PGSQL.${port ?? ""}.lock`), "utf8");
    return Number.parseInt(lock, 10) === pid ? [pid] : [];
  } catch {
    return [];
  }
}
