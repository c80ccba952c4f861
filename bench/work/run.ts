/**
 * `npm run bench:work [-- --full]`: Holdfast beside its peers, on one server, in one run, with `synchronous_commit`
 * and `fsync` on. Medians of `--rounds`; the engines take turns in each round, so that what else the machine does
 * falls on all of them. `--full`: five rounds, and Holdfast under what makes queues slow. Writes Markdown to standard output.
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { availableParallelism, loadavg, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { Client } from "pg";
import type { ConnectionSettings } from "../../src/core/postgres/pool.ts";
import { startPostgres } from "../../src/dev/postgres/server.ts";
import { prepareStore } from "../../src/dev/store.ts";
import { bundled } from "./bundle.ts";
import type { Engine } from "./engine.ts";
import { engineNames, engineOf } from "./engines.ts";
import { holdfast } from "./holdfast.ts";
import { type Drained, drain, pickUp, singles } from "./measure.ts";

const { values } = parseArgs({
  options: {
    items: { type: "string", default: "20000" },
    rounds: { type: "string" },
    submitMs: { type: "string", default: "2000" },
    samples: { type: "string", default: "100" },
    only: { type: "string", default: engineNames.join() },
    full: { type: "boolean", default: false },
    cases: { type: "boolean", default: false },
  },
});
const items = Number(values.items);
const rounds = Number(values.rounds ?? (values.full ? 5 : 2));
const concurrencies = [10, 50] as const;

if (!existsSync(join(import.meta.dirname, "node_modules"))) {
  spawnSync("npm", ["ci", "--ignore-scripts"], { cwd: import.meta.dirname, stdio: "inherit" });
}
const file = await bundled();
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

const url = ({ user, password, host, port }: ConnectionSettings, database: string) =>
  `postgresql://${encodeURIComponent(user)}:${encodeURIComponent(password)}@/${database}?host=${encodeURIComponent(host)}&port=${port}`;

/** Both of ours use one store, which is made once. */
let store: Promise<ConnectionSettings> | undefined;

async function databaseOf(name: string): Promise<ConnectionSettings> {
  if (name === "holdfast" || name === "strict")
    return (store ??= prepareStore(postgres.connection, "bench", () => undefined));
  const server = new Client(postgres.connection);
  await server.connect();
  await server.query(`create database bench_${name}`);
  await server.end();
  return { ...postgres.connection, database: `bench_${name}` };
}

async function adminOf(database: string): Promise<Client> {
  const admin = new Client({ ...postgres.connection, database });
  await admin.connect();
  return admin;
}

interface Opened {
  readonly name: string;
  readonly engine: Engine;
  readonly admin: Client;
  readonly database: ConnectionSettings;
}

async function openOn(name: string): Promise<Opened> {
  const database = await databaseOf(name);
  const admin = await adminOf(database.database);
  if (name === "holdfast" || name === "strict")
    await admin.query("insert into holdfast.tenants (tenant_id) values ('bench') on conflict do nothing");
  const engine = await engineOf(name, file)(database, url(postgres.connection, database.database));
  return { name, engine, admin, database };
}

const median = (numbers: readonly number[]) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1] ?? 0;
const row = (cells: readonly (string | number)[]) =>
  console.log(`| ${cells.map((cell) => (typeof cell === "number" ? Math.round(cell) : cell)).join(" | ")} |`);
const load = () => loadavg()[0]?.toFixed(1);

console.log(
  `${items} items, median of ${rounds} rounds, ${availableParallelism()} processors, load ${load()} at the start\n`,
);
const open: Opened[] = [];
for (const name of values.only.split(",")) open.push(await openOn(name));
const drained = new Map<string, Drained[]>();
for (let round = 0; round < rounds; round += 1) {
  for (const { name, engine, admin } of open) {
    for (const concurrency of concurrencies) {
      const one = await drain(engine, admin, { items, concurrency, serverPid: postgres.pid });
      const key = `${name} ${concurrency}`;
      drained.set(key, [...(drained.get(key) ?? []), one]);
    }
  }
}
row([
  "engine",
  "drain at 10",
  "at 50",
  "bulk",
  "single, 16 callers",
  "log, submit",
  "log, run",
  "rows, run",
  "server µs",
  "program µs",
]);
row(["---", ...Array.from({ length: 9 }, () => "---:")]);
for (const { name, engine } of open) {
  const all = concurrencies.map((concurrency) => drained.get(`${name} ${concurrency}`) ?? []);
  const of = (fact: keyof Drained) => median(all.flat().map((one) => one[fact]));
  const single: number[] = [];
  for (let round = 0; round < rounds; round += 1) single.push(await singles(engine, Number(values.submitMs)));
  const rates = all.map((some) => median(some.map(({ rate }) => rate)));
  row([
    engine.name,
    ...rates,
    of("bulk"),
    median(single),
    of("walSubmit"),
    of("walRun"),
    of("rows").toFixed(1),
    of("server"),
    of("program"),
  ]);
}
console.log(`\nload ${load()}\n`);

// What the single submissions left is run before anything is timed.
for (const { engine, admin } of open) {
  const stop = await engine.run(50, { enter: () => undefined, leave: () => undefined });
  for (let tries = 0; tries < 600; tries += 1) {
    const { rows } = await admin.query<{ n: number }>(engine.waiting ?? "select 0 as n");
    if (rows[0]?.n === 0) break;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  await stop();
}
row(["pick-up, ms", "p50", "p99"]);
row(["---", "---:", "---:"]);
for (const { name, engine, database } of open) {
  if (name === "bare" || name === "bullmq") continue;
  const task = { name, file, database, url: url(postgres.connection, database.database) };
  const waits = await pickUp(engine, task, Number(values.samples));
  const at = (share: number) => (waits[Math.floor(waits.length * share)] ?? 0).toFixed(1);
  row([engine.name, at(0.5), at(0.99)]);
}
for (const { engine, admin } of open) {
  await engine.close();
  await admin.end();
}
if (values.full || values.cases) await cases();
await postgres.stop();
await rm(dirname(file), { recursive: true });

/** Holdfast alone, under what makes queues slow. */
async function cases(): Promise<void> {
  const database = await prepareStore(postgres.connection, "bench", () => undefined);
  const admin = await adminOf(database.database);
  const names = Array.from({ length: 1_000 }, (_, n) => `t${n}`);
  await admin.query(
    "insert into holdfast.tenants (tenant_id) select 'bench' union all select unnest($1::text[]) on conflict do nothing",
    [names],
  );
  const plain = await holdfast(file, "idempotent")(database, "");
  const many = await holdfast(file, "idempotent", names)(database, "");
  const measured = async (what: string, engine: Engine) => {
    const rates: number[] = [];
    for (let round = 0; round < rounds; round += 1)
      rates.push((await drain(engine, admin, { items, concurrency: 50, serverPid: postgres.pid })).rate);
    row([what, median(rates)]);
  };
  console.log("");
  row(["holdfast idempotent, drain at 50", "items a second"]);
  row(["---", "---:"]);
  await measured("plain", plain);
  await measured("1,000 tenants of 20 items", many);
  const snapshot = await adminOf(database.database);
  await snapshot.query("begin isolation level repeatable read");
  await snapshot.query("select count(*) from holdfast.store");
  await measured("with an idle snapshot held", plain);
  await snapshot.query("rollback");
  await snapshot.end();
  const copies = (table: string, change: string) => `
    insert into holdfast.${table}
    select r.* from (select * from holdfast.${table} limit 1) o, generate_series(1, 1000000) n,
      lateral jsonb_populate_record(o::holdfast.${table}, ${change}) r`;
  await admin.query("vacuum analyze");
  await plain.submitAll(1);
  await admin.query(
    copies(
      "leases_work",
      `jsonb_build_object('resource_id', gen_random_uuid(), 'due_at', now() + interval '1 day' + n * interval '1 ms', 'wake_at', now() + interval '1 day' + n * interval '1 ms')`,
    ),
  );
  await measured("with a million due later", plain);
  await admin.query("delete from holdfast.leases_work");
  await admin.query(copies("work_history", "jsonb_build_object('work_id', gen_random_uuid())"));
  await admin.query(
    copies("work_items", "jsonb_build_object('work_id', gen_random_uuid(), 'idempotency_key', null)"),
  );
  await measured("with a million finished", plain);
  await plain.close();
  await many.close();
  await admin.end();
}
