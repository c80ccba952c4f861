import type { Client } from "pg";
import { copies, idOf } from "./copies.ts";
import type { Engine } from "./engine.ts";
import { holdfast } from "./holdfast.ts";
import { drain } from "./measure.ts";
import { budgeted, load, median, row, say } from "./print.ts";
import type { Server } from "./server.ts";

export interface CaseSizes {
  readonly items: number;
  readonly rounds: number;
  /** Rows of what is due later, and of what is finished. */
  readonly rows: number;
  readonly snapshotMs: number;
}

interface Case {
  readonly what: string;
  /** Times the plain run's rate, at least. */
  readonly budget: number | null;
  readonly tenants?: readonly string[];
  /** What makes it slow; gives what ends that. */
  readonly begin?: (admin: Client) => Promise<() => Promise<void>>;
  /** How long that has lasted at least before the rounds that count. */
  readonly forMs?: number;
}

const concurrency = 50;
const perTenant = 20;
const nothing = () => Promise.resolve();

/** Holdfast alone, under what makes queues slow: each beside a plain store, which takes turns with it. */
export async function measureCases(server: Server, file: string, sizes: CaseSizes): Promise<void> {
  const tenants = Array.from({ length: Math.ceil(sizes.items / perTenant) }, (_, n) => `t${n}`);
  const cases: readonly Case[] = [
    { what: `${tenants.length} tenants of ${perTenant} items`, budget: 0.5, tenants },
    {
      what: `${sizes.rows} due later`,
      budget: 0.9,
      async begin(admin) {
        const due = "now() + interval '1 day' + n * interval '1 ms'";
        await copies(admin, "holdfast.leases_work", sizes.rows, {
          resource_id: idOf(3),
          due_at: due,
          wake_at: due,
        });
        return nothing;
      },
    },
    {
      what: `${sizes.rows} finished`,
      budget: null,
      async begin(admin) {
        await copies(admin, "holdfast.work_items", sizes.rows, { work_id: idOf(1) });
        await copies(admin, "holdfast.work_history", sizes.rows, { work_id: idOf(1) });
        return nothing;
      },
    },
    {
      what: `an idle snapshot held for ${sizes.snapshotMs / 1_000} s`,
      budget: 0.7,
      forMs: sizes.snapshotMs,
      async begin(admin) {
        await admin.query("begin isolation level repeatable read");
        await admin.query("select count(*) from holdfast.store");
        return async () => void (await admin.query("rollback"));
      },
    },
  ];
  say(`\n${sizes.items} items, median of ${sizes.rounds} rounds, load ${load()}\n`);
  row(["holdfast idempotent, drain at 50", "items a second", "plain beside it", "ratio", "budget", "load"]);
  row(["---", "---:", "---:", "---:", "---", "---:"]);
  for (const one of cases) await measure(server, file, sizes, one);
}

async function measure(server: Server, file: string, sizes: CaseSizes, one: Case): Promise<void> {
  const plain = await open(server, file, "plain");
  const slow = await open(server, file, "slow", one.tenants);
  const rateOf = async ({ engine, admin }: Opened, items = sizes.items) =>
    (await drain(engine, admin, { items, concurrency, serverPid: server.pid })).rate;
  for (const opened of [plain, slow]) await rateOf(opened, Math.ceil(sizes.items / perTenant));
  // Beside what has run, one that waits: a row of each table is there to be copied.
  if (one.begin !== undefined) await slow.engine.submitAll(1);
  const beside = await server.admin("slow");
  const end = await one.begin?.(beside);
  const begun = performance.now();
  const rates: { plain: number; slow: number }[] = [];
  while (rates.length < sizes.rounds || performance.now() - begun < (one.forMs ?? 0)) {
    // Whoever is first in one round is second in the next.
    if (rates.length % 2 === 0) rates.push({ plain: await rateOf(plain), slow: await rateOf(slow) });
    else rates.push({ slow: await rateOf(slow), plain: await rateOf(plain) });
  }
  await end?.();
  await beside.end();
  const counted = rates.slice(-sizes.rounds);
  const [rate, plainly] = [median(counted.map((r) => r.slow)), median(counted.map((r) => r.plain))];
  row([
    one.what,
    rate,
    plainly,
    (rate / plainly).toFixed(2),
    one.budget === null ? "" : budgeted(rate / plainly, one.budget, "least"),
    load(),
  ]);
  for (const { engine, admin, name } of [plain, slow]) {
    await engine.close();
    await admin.end();
    await server.drop(name);
  }
}

interface Opened {
  readonly name: string;
  readonly engine: Engine;
  readonly admin: Client;
}

async function open(
  server: Server,
  file: string,
  name: string,
  tenants: readonly string[] = ["bench"],
): Promise<Opened> {
  const database = await server.store(name, tenants);
  const engine = await holdfast(file, "idempotent", tenants)(database, "");
  return { name, engine, admin: await server.admin(name) };
}
