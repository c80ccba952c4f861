/**
 * `npm run bench:work [-- --full]`: Holdfast beside its peers, on one server, in one run, with `synchronous_commit`
 * and `fsync` on. Medians of `--rounds`; the engines take turns in each round, so that what else the machine does
 * falls on all of them. `--full`: five rounds, and Holdfast under what makes queues slow (`--cases`, `--only-cases`)
 * and the queries of its hot path beside a million rows of each kind (`--claims`, `--only-claims`). Writes Markdown
 * to standard output. Fails when one of those queries reads more the more rows there are.
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import type { Client } from "pg";
import type { ConnectionSettings } from "../../src/core/postgres/pool.ts";
import { bundled } from "./bundle.ts";
import { measureCases } from "./cases.ts";
import { measureClaims } from "./claims.ts";
import type { Engine } from "./engine.ts";
import { engineNames, engineOf } from "./engines.ts";
import { type Drained, drain, pickUp, singles } from "./measure.ts";
import { load, median, row, say } from "./print.ts";
import { startServer, urlOf } from "./server.ts";

const { values } = parseArgs({
  options: {
    items: { type: "string", default: "20000" },
    rounds: { type: "string" },
    submitMs: { type: "string", default: "2000" },
    samples: { type: "string", default: "300" },
    only: { type: "string", default: engineNames.join() },
    full: { type: "boolean", default: false },
    cases: { type: "boolean", default: false },
    claims: { type: "boolean", default: false },
    "only-cases": { type: "boolean", default: false },
    "only-claims": { type: "boolean", default: false },
    /** Of the cases and claims: rows of each kind, claims of each size, and how long a snapshot is held. */
    rows: { type: "string", default: "1000000" },
    tries: { type: "string", default: "200" },
    snapshotMs: { type: "string", default: "60000" },
    help: { type: "boolean", default: false },
  },
});
if (values.help) {
  say(`npm run bench:work -- [OPTIONS]

  --items 20000      items of a drain, and --rounds 2 of each
  --only ${engineNames.join()}
  --full             five rounds, and what follows
  --cases, --claims  also what makes queues slow; queries beside a million rows. --only-cases, --only-claims: nothing else
  --rows 1000000 --tries 200 --snapshotMs 60000 --submitMs 2000 --samples 300`);
  process.exit(0);
}
const items = Number(values.items);
const rounds = Number(values.rounds ?? (values.full ? 5 : 2));
const rows = Number(values.rows);
const concurrencies = [10, 50] as const;
const withPeers = !values["only-cases"] && !values["only-claims"];

if (withPeers && !existsSync(join(import.meta.dirname, "node_modules"))) {
  spawnSync("npm", ["ci", "--ignore-scripts"], { cwd: import.meta.dirname, stdio: "inherit" });
}
const file = await bundled();
const server = await startServer();
say(
  `${items} items, median of ${rounds} rounds, ${availableParallelism()} processors, load ${load()} at the start\n`,
);
if (withPeers) await besidePeers();
if (values.full || values.cases || values["only-cases"])
  await measureCases(server, file, { items, rounds, rows, snapshotMs: Number(values.snapshotMs) });
if (values.full || values.claims || values["only-claims"]) {
  if (!(await measureClaims(server, { rows, tries: Number(values.tries) }))) process.exitCode = 1;
}
await server.stop();
await rm(dirname(file), { recursive: true });

interface Opened {
  readonly name: string;
  readonly engine: Engine;
  readonly admin: Client;
  readonly database: ConnectionSettings;
}

/** Both of ours use one store. */
async function openOn(name: string, store: ConnectionSettings): Promise<Opened> {
  const ours = name === "holdfast" || name === "strict";
  const database = ours ? store : await server.database(`bench_${name}`);
  const engine = await engineOf(name, file)(database, urlOf(database));
  return { name, engine, admin: await server.admin(database.database), database };
}

async function besidePeers(): Promise<void> {
  const store = await server.store("bench", ["bench"]);
  const open: Opened[] = [];
  for (const name of values.only.split(",")) open.push(await openOn(name, store));
  await drainAll(open);
  // What the single submissions left is run before anything is timed.
  for (const { engine, admin } of open) await runOut(engine, admin);
  for (const { engine, admin } of open) {
    await engine.close();
    await admin.end();
  }
  await pickUpAll(open);
}

async function drainAll(open: readonly Opened[]): Promise<void> {
  const drained = new Map<string, Drained[]>();
  for (let round = 0; round < rounds; round += 1) {
    for (const { name, engine, admin } of open) {
      for (const concurrency of concurrencies) {
        const rows = round === 0 && concurrency === 10;
        const one = await drain(engine, admin, { items, concurrency, serverPid: server.pid, rows });
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
    "log, run at 10",
    "at 50",
    "rows, run",
    "server µs",
    "program µs",
  ]);
  row(["---", ...Array.from({ length: 10 }, () => "---:")]);
  for (const { name, engine } of open) {
    const all = concurrencies.map((concurrency) => drained.get(`${name} ${concurrency}`) ?? []);
    const of = (fact: keyof Drained) => median(all.flat().flatMap((one) => one[fact] ?? []));
    const single: number[] = [];
    for (let round = 0; round < rounds; round += 1)
      single.push(await singles(engine, Number(values.submitMs)));
    const rates = all.map((some) => median(some.map(({ rate }) => rate)));
    row([
      engine.name,
      ...rates,
      of("bulk"),
      median(single),
      of("walSubmit"),
      ...all.map((some) => median(some.map(({ walRun }) => walRun))),
      of("rows").toFixed(2),
      of("server"),
      of("program"),
    ]);
  }
  say(`\nload ${load()}\n`);
}

async function runOut(engine: Engine, admin: Client): Promise<void> {
  const stop = await engine.run(50, { enter: () => undefined, leave: () => undefined });
  for (let tries = 0; tries < 600; tries += 1) {
    const { rows: left } = await admin.query<{ n: number }>(engine.waiting ?? "select 0 as n");
    if (left[0]?.n === 0) break;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  await stop();
}

/** Each alone: the system is idle, and the others, which look around for work of theirs, are not there. */
async function pickUpAll(opened: readonly Opened[]): Promise<void> {
  row(["pick-up, ms", "p50", "p99"]);
  row(["---", "---:", "---:"]);
  for (const { name, database } of opened) {
    if (name === "bare" || name === "bullmq") continue;
    const task = { name, file, database, url: urlOf(database) };
    const engine = await engineOf(name, file)(database, task.url);
    const waits = await pickUp(engine, task, Number(values.samples));
    // By nearest rank.
    const at = (share: number) => (waits[Math.ceil(waits.length * share) - 1] ?? 0).toFixed(1);
    row([engine.name, at(0.5), at(0.99)]);
    await engine.close();
  }
}
