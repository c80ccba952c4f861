import { brandId, type IncarnationId, uuidv7 } from "../../src/core/ids.ts";
import type { Role } from "../../src/core/postgres/pool.ts";
import { seconds } from "../../src/core/time.ts";
import { defineWork } from "../../src/work/define.ts";
import { openWork, submit, submitAll } from "../../src/work/open.ts";
import { openedWork } from "../../src/work/opened.ts";
import { legacy } from "../../src/work/policy.ts";
import { claimWork, turnWork } from "../../src/work/turn.store.ts";
import { registerVersion } from "../../src/work/version.store.ts";
import { type Fill, fill, tenantOf } from "./copies.ts";
import { type HotCall, type HotStore, hotBatch, hotCalls } from "./hot-path.ts";
import { budgeted, load, median, row, say } from "./print.ts";
import type { Server } from "./server.ts";
import { openUndone, type Undone } from "./undone.ts";

const tenants = Array.from({ length: 10 }, (_, n) => `t${n}`);
const smallRows = 1_000;
/** A tree over a thousand times as many rows is about two pages deeper, and each item is looked for in several. */
const pagesFactor = 2.5;
const pagesBeside = 100;
const timeoutMs = 60_000;

interface Opened {
  readonly store: HotStore;
  readonly hand: (role: Role) => Promise<Undone>;
  readonly close: () => Promise<void>;
}

/**
 * The queries of the hot path beside few rows and beside many, in turns, each rolled back: how long they take and how
 * many pages they look at. False when one reads a table of Work from end to end or when its pages grow with the rows.
 */
export async function measureClaims(server: Server, { rows, tries }: { rows: number; tries: number }) {
  say(
    `\n${rows} waiting, ${rows} due later and ${rows} finished beside ${smallRows} of each, load ${load()}`,
  );
  const small = await open(server, "small", { waiting: smallRows, later: smallRows, finished: smallRows });
  const big = await open(server, "big", { waiting: rows, later: rows, finished: rows });
  say(`filled, load ${load()}\n`);
  row([
    `calls of ${hotBatch}`,
    "µs, few rows",
    "µs, many",
    "ratio",
    "budget",
    "pages, few",
    "pages, many",
    "walks",
  ]);
  row(["---", "---:", "---:", "---:", "---", "---:", "---:", "---"]);
  let bounded = true;
  for (const call of hotCalls) bounded = (await compare(call, small, big, tries)) && bounded;
  await small.close();
  await big.close();
  for (const name of ["small", "big"]) await server.drop(name);
  say(`\nload ${load()}`);
  return bounded;
}

async function compare(call: HotCall, small: Opened, big: Opened, tries: number): Promise<boolean> {
  const sides = [];
  for (const { store, hand } of [small, big]) {
    const undone = await hand(call.role);
    const run = (hands: Parameters<HotCall["run"]>[0]) => call.run(hands, store);
    // The first ones plan, and read what is not in memory yet.
    for (let n = 0; n < 5; n += 1) await undone.timed(run);
    sides.push({ undone, run, times: [] as number[], ...(await undone.looked(run)) });
  }
  for (let n = 0; n < tries; n += 1) {
    for (const { undone, run, times } of n % 2 === 0 ? sides : sides.toReversed())
      times.push(await undone.timed(run));
  }
  for (const { undone } of sides) await undone.close();
  const [few, many] = sides;
  if (few === undefined || many === undefined) throw new Error("there are two stores");
  const [before, after] = [median(few.times), median(many.times)];
  const walked = [...new Set(sides.flatMap(({ walked: tables }) => tables))];
  const grows = many.pages > few.pages * pagesFactor + pagesBeside;
  row([
    call.what,
    before,
    after,
    (after / before).toFixed(2),
    call.budget === undefined ? "" : budgeted(after / before, call.budget, "most"),
    few.pages,
    many.pages,
    [...walked, ...(grows ? ["**its pages grow with the rows**"] : [])].join(", ") || "none",
  ]);
  return walked.length === 0 && !grows;
}

/** A store with its rows, which are copies of one item that waits and one that ran. */
async function open(
  server: Server,
  name: string,
  counts: Omit<Fill, "tenant" | "idleLane">,
): Promise<Opened> {
  const database = await server.store(name, tenants);
  const admin = await server.admin(name);
  const opened = await openWork({ database, tenant: "t0", name: "bench" });
  const { db } = openedWork(opened);
  const work = defineWork<unknown, null>({
    name: "noop",
    version: "1",
    safety: "idempotent",
    policy: legacy(),
    run: () => null,
  });
  const number = await registerVersion(db, work);
  const holder = brandId<IncarnationId>(uuidv7());
  const claim = (queue: string) =>
    claimWork(db, { holder, lanes: [`${number}.${queue}`], limit: hotBatch, leaseUs: seconds(3_600) });
  await submit(opened, work, { n: 0 });
  const { permitted } = await turnWork(db, holder, [], (await claim("default")).claimed);
  const done = permitted.map((item) => ({ item, outcome: { type: "succeeded", result: "1" } as const }));
  await turnWork(db, holder, done, []);
  await submit(opened, work, { n: 0 });
  await fill(admin, { ...counts, tenant: tenantOf(tenants.length), idleLane: `${number}.idle` });
  const input = { input: { n: 0 }, queue: "held" };
  await submitAll(
    opened,
    work,
    Array.from({ length: hotBatch }, () => input),
  );
  const { claimed } = await claim("held");
  await admin.end();
  return {
    store: { work, lane: `${number}.default`, idleLane: `${number}.idle`, tenants, holder, held: claimed },
    hand: (role) => openUndone(database, role, db, timeoutMs),
    close: () => opened.close(),
  };
}
