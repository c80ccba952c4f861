import { fork } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Client } from "pg";
import type { Engine } from "./engine.ts";

export interface Drained {
  /** Items a second, from the first handler's start until the last item is settled. */
  readonly rate: number;
  readonly bulk: number;
  readonly walSubmit: number;
  readonly walRun: number;
  /** Rows written an item while it runs; null when they were not waited for. */
  readonly rows: number | null;
  /** Microseconds of processor time an item: the server's, and this program's. */
  readonly server: number;
  readonly program: number;
}

const toldAfterMs = 10_500;

/** Submits, lets it settle, runs it to the end. Throws when more handlers were in flight than may be. */
export async function drain(
  engine: Engine,
  admin: Client,
  {
    items: all,
    concurrency,
    serverPid,
    rows: withRows = false,
  }: { items: number; concurrency: number; serverPid: number; rows?: boolean },
): Promise<Drained> {
  const items = Math.round(all * (engine.share ?? 1));
  const empty = await number(admin, walAt);
  const submitted = performance.now();
  await engine.submitAll(items);
  const bulk = (items / (performance.now() - submitted)) * 1_000;
  const walSubmit = ((await number(admin, walAt)) - empty) / items;
  await admin.query("vacuum analyze");
  await admin.query("checkpoint");
  let [ran, flying, most, startedAt] = [0, 0, 0, 0];
  const finished = Promise.withResolvers<undefined>();
  const counter = {
    enter() {
      if (startedAt === 0) startedAt = performance.now();
      flying += 1;
      most = Math.max(most, flying);
    },
    leave() {
      flying -= 1;
      ran += 1;
      if (ran === items) finished.resolve(undefined);
    },
  };
  // Backends tell how many rows they wrote when they have been idle for ten seconds.
  if (withRows) await delay(toldAfterMs);
  const before = await facts(admin, serverPid);
  const stop = await engine.run(concurrency, counter);
  await finished.promise;
  while (engine.waiting !== null && (await number(admin, engine.waiting)) > 0) await delay(1);
  const rate = (items / (performance.now() - startedAt)) * 1_000;
  await stop();
  await delay(withRows ? toldAfterMs : 1_200);
  const after = await facts(admin, serverPid);
  if (most > concurrency)
    throw new Error(`${engine.name} had ${most} handlers in flight, with a concurrency of ${concurrency}`);
  const each = (fact: keyof typeof after) => (after[fact] - before[fact]) / items;
  return {
    rate,
    bulk,
    walSubmit,
    walRun: each("wal"),
    rows: withRows ? each("rows") : null,
    server: each("server"),
    program: each("program"),
  };
}

/** Items that sixteen callers get accepted in a second, each waiting for its own. */
export async function singles(engine: Engine, ms: number): Promise<number> {
  let count = 0;
  const started = performance.now();
  const caller = async () => {
    while (performance.now() - started < ms) {
      await engine.submit();
      count += 1;
    }
  };
  await Promise.all(Array.from({ length: 16 }, caller));
  return (count / (performance.now() - started)) * 1_000;
}

/** Milliseconds from before a submission until its handler starts, in another process that has nothing else to do. */
export async function pickUp(engine: Engine, task: object, samples: number): Promise<number[]> {
  const child = fork(join(import.meta.dirname, "pick-up.ts"), [JSON.stringify(task)], { stdio: "inherit" });
  await once(child, "message");
  const waits: number[] = [];
  for (let n = 0; n < samples + 5; n += 1) {
    const entered = once(child, "message") as Promise<string[]>;
    const submitted = process.hrtime.bigint();
    await engine.submit();
    const [at] = await entered;
    // The first ones find everything cold.
    if (n >= 5) waits.push(Number(BigInt(at ?? 0) - submitted) / 1e6);
    await delay(40);
  }
  const exited = once(child, "exit");
  child.send("stop");
  await exited;
  return waits.toSorted((a, b) => a - b);
}

const walAt = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 as n";

async function facts(admin: Client, serverPid: number) {
  return {
    wal: await number(admin, walAt),
    rows: await number(
      admin,
      "select coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::float8 as n from pg_stat_user_tables",
    ),
    server: serverMicroseconds(serverPid),
    program: micros(process.cpuUsage()),
  };
}

const micros = ({ user, system }: NodeJS.CpuUsage) => user + system;

async function number(admin: Client, query: string): Promise<number> {
  const { rows } = await admin.query<{ n: number }>(query);
  return rows[0]?.n ?? 0;
}

/** Of all processes of the server, those that have ended as well. In steps of 10 ms, and only where /proc is. */
function serverMicroseconds(serverPid: number): number {
  let ticks = 0;
  try {
    for (const pid of readdirSync("/proc")) {
      if (!/^\d+$/.test(pid)) continue;
      const fields = fieldsOf(pid);
      if (pid === String(serverPid)) ticks += Number(fields[13]) + Number(fields[14]);
      if (fields[1] === String(serverPid)) ticks += Number(fields[11]) + Number(fields[12]);
    }
  } catch {
    // Another system, or a process that ended while it was looked at.
  }
  return ticks * 10_000;
}

function fieldsOf(pid: string): readonly string[] {
  try {
    return readFileSync(`/proc/${pid}/stat`, "utf8")
      .replace(/^.*\) /s, "")
      .split(" ");
  } catch {
    return [];
  }
}
