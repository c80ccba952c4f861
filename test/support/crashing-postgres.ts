import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Postgres, type PostgresConnection, startPostgres } from "../../src/dev/postgres/server.ts";

/** A server that a test kills, with all its processes at once, and starts again on what it left. */
export interface CrashingPostgres {
  /** The same after each start. */
  readonly connection: PostgresConnection;
  /** SIGKILL. Resolves when it has ended; again changes nothing. */
  readonly crash: () => Promise<void>;
  readonly restart: () => Promise<void>;
  readonly stop: () => Promise<void>;
}

/** What a commit has written outlives SIGKILL without fsync: the machine itself goes on. */
const settings = { fsync: "off", autovacuum_naptime: "10min" };

export async function startCrashingPostgres(): Promise<CrashingPostgres> {
  const directory = await mkdtemp(join(tmpdir(), "holdfast-crash-"));
  let server: Postgres = await startPostgres({ directory, settings });
  return {
    connection: server.connection,
    crash: () => killServer(server),
    async restart() {
      await server.stop();
      server = await startPostgres({ directory, settings });
    },
    async stop() {
      await server.stop();
      await rm(directory, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** SIGKILL to all its processes at once. */
export async function killServer(server: Postgres): Promise<void> {
  const children = childrenOf(server.pid);
  // The one that would start the others again goes first.
  for (const pid of [server.pid, ...children]) kill(pid);
  await server.ended;
}

/** Where there is no /proc, they end by themselves when they miss their parent. */
function childrenOf(parent: number): number[] {
  try {
    return readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .map(Number)
      .filter((pid) => parentOf(pid) === parent);
  } catch {
    return [];
  }
}

function parentOf(pid: number): number | null {
  try {
    // The name, in brackets, may hold anything; after it come the state and the parent.
    const [, parent] = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1)?.split(" ") ?? [];
    return Number(parent);
  } catch {
    return null;
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended already.
  }
}
