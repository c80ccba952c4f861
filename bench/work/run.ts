/**
 * `npm run bench:work [-- --items 20000 --rounds 3]`: Holdfast beside its peers, on one server, in one run, with
 * `synchronous_commit = on` and `fsync` on. Medians; the engines take turns in each round, so that what else the
 * machine does falls on all of them. Writes the table to standard output.
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Client } from "pg";
import type { ConnectionSettings } from "../../src/core/postgres/pool.ts";
import { startPostgres } from "../../src/dev/postgres/server.ts";
import { prepareStore } from "../../src/dev/store.ts";
import type { Engine, OpenEngine } from "./engine.ts";
import { holdfast } from "./holdfast.ts";
import { bareLoop, graphileWorker, pgBoss } from "./peers.ts";

const { values } = parseArgs({
  options: {
    items: { type: "string", default: "20000" },
    rounds: { type: "string", default: "3" },
    submitMs: { type: "string", default: "2000" },
    only: { type: "string", default: "" },
  },
});
const items = Number(values.items);
const rounds = Number(values.rounds);

if (!existsSync(join(import.meta.dirname, "node_modules"))) {
  spawnSync("npm", ["ci", "--ignore-scripts"], { cwd: import.meta.dirname, stdio: "inherit" });
}

const postgres = await startPostgres({
  directory: await mkdtemp(join(tmpdir(), "holdfast-bench-")),
  throwaway: true,
  settings: {
    shared_buffers: "512MB",
    max_wal_size: "4GB",
    checkpoint_timeout: "30min",
    max_connections: "200",
  },
});
const engines: readonly (readonly [name: string, OpenEngine])[] = (
  [
    ["holdfast", holdfast("idempotent")],
    ["strict", holdfast("manual_resolution")],
    ["graphile", graphileWorker],
    ["boss", pgBoss],
    ["bare", bareLoop],
  ] as const
).filter(([name]) => values.only === "" || values.only.split(",").includes(name));

interface Measured {
  readonly bulk: number[];
  readonly single: number[];
  readonly drain: Record<number, number[]>;
  readonly walSubmit: number[];
  readonly walDrain: number[];
  readonly flight: Record<number, number>;
}

const url = ({ user, password, host, port }: ConnectionSettings, database: string) =>
  `postgresql://${encodeURIComponent(user)}:${encodeURIComponent(password)}@/${database}?host=${encodeURIComponent(host)}&port=${port}`;

/** Both of ours use one store, which is made once. */
let store: Promise<ConnectionSettings> | undefined;

async function openOn(
  name: string,
  open: OpenEngine,
): Promise<{ readonly engine: Engine; readonly admin: Client }> {
  const isPeer = open === graphileWorker || open === pgBoss || open === bareLoop;
  const settings = isPeer
    ? { ...postgres.connection, database: `bench_${name}` }
    : await (store ??= prepareStore(postgres.connection, "bench", () => undefined));
  if (isPeer) {
    const server = new Client(postgres.connection);
    await server.connect();
    await server.query(`create database ${settings.database}`);
    await server.end();
  }
  const admin = new Client({ ...postgres.connection, database: settings.database });
  await admin.connect();
  if (!isPeer)
    await admin.query("insert into holdfast.tenants (tenant_id) values ('bench') on conflict do nothing");
  return { engine: await open(settings, url(postgres.connection, settings.database)), admin };
}

async function wal(admin: Client): Promise<number> {
  const { rows } = await admin.query<{ at: number }>(
    "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 as at",
  );
  return rows[0]?.at ?? 0;
}

async function drainOnce(engine: Engine, admin: Client, concurrency: number, into: Measured): Promise<void> {
  const before = await wal(admin);
  const submitted = performance.now();
  await engine.submitAll(items);
  into.bulk.push((items / (performance.now() - submitted)) * 1_000);
  into.walSubmit.push(((await wal(admin)) - before) / items);
  await admin.query("vacuum analyze");
  let [ran, flying, most] = [0, 0, 0];
  const finished = Promise.withResolvers<undefined>();
  const counter = {
    enter: () => void (most = Math.max(most, ++flying)),
    leave() {
      flying -= 1;
      ran += 1;
      if (ran === items) finished.resolve(undefined);
    },
  };
  const from = await wal(admin);
  const started = performance.now();
  const stop = await engine.run(concurrency, counter);
  await finished.promise;
  for (;;) {
    const { rows } = await admin.query<{ n: number }>(engine.waiting);
    if (rows[0]?.n === 0) break;
  }
  (into.drain[concurrency] ??= []).push((items / (performance.now() - started)) * 1_000);
  into.walDrain.push(((await wal(admin)) - from) / items);
  into.flight[concurrency] = Math.max(into.flight[concurrency] ?? 0, most);
  if (most > concurrency)
    throw new Error(`${engine.name} had ${most} handlers in flight, with a concurrency of ${concurrency}`);
  await stop();
}

async function singles(engine: Engine, into: Measured): Promise<void> {
  let count = 0;
  const started = performance.now();
  const caller = async () => {
    while (performance.now() - started < Number(values.submitMs)) {
      await engine.submit();
      count += 1;
    }
  };
  await Promise.all(Array.from({ length: 16 }, caller));
  into.single.push((count / (performance.now() - started)) * 1_000);
}

const open: Awaited<ReturnType<typeof openOn>>[] = [];
for (const [name, opener] of engines) open.push(await openOn(name, opener));
const results = new Map<string, Measured>();
for (let round = 0; round < rounds; round += 1) {
  for (const { engine, admin } of open) {
    const into = results.get(engine.name) ?? {
      bulk: [],
      single: [],
      drain: {},
      walSubmit: [],
      walDrain: [],
      flight: {},
    };
    results.set(engine.name, into);
    for (const concurrency of [10, 50]) await drainOnce(engine, admin, concurrency, into);
  }
}
for (const { engine } of open) await singles(engine, results.get(engine.name) as Measured);

const median = (numbers: readonly number[] = []) =>
  Math.round(numbers.toSorted((a, b) => a - b)[numbers.length >> 1] ?? 0);
console.log(`\n${items} items, median of ${rounds}; items a second, bytes of write-ahead log an item\n`);
console.log(
  "| engine | drain at 10 | drain at 50 | bulk submit | single submits, 16 callers | log, submit | log, run |",
);
console.log("|---|---:|---:|---:|---:|---:|---:|");
for (const [name, { drain, bulk, single, walSubmit, walDrain }] of results) {
  const cells = [
    median(drain[10]),
    median(drain[50]),
    median(bulk),
    median(single),
    median(walSubmit),
    median(walDrain),
  ];
  console.log(`| ${name} | ${cells.join(" | ")} |`);
}
for (const { engine, admin } of open) {
  await engine.close();
  await admin.end();
}
await postgres.stop();
