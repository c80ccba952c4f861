import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Client } from "pg";
import type { Invariant, Violation } from "../src/core/invariant.ts";
import { runOn, type Transaction } from "../src/core/postgres/transition.ts";
import { instant } from "../src/core/time.ts";
import { allInvariants } from "../src/main/doctor.ts";
import { openAttempts } from "./support/attempts.ts";
import { corruptions } from "./support/corruptions.ts";
import { assertInvariants } from "./support/invariants.ts";
import type { Kernel } from "./support/kernel.ts";
import { sessionCorruptions } from "./support/session-corruptions.ts";
import { liveThroughSessions } from "./support/session-life.ts";
import { liveThrough } from "./support/stored-life.ts";
import { openTurns } from "./support/turns.ts";
import { openWorkApi } from "./support/work-api.ts";
import { workCorruptions } from "./support/work-corruptions.ts";
import { liveThroughWork } from "./support/work-life.ts";

/** Stores that have lived: one of jobs, one of sessions, one of Work. */
const bench = await openAttempts({ after }, { slots: 4 });
const turns = await openTurns({ after });
await liveThrough(bench);
await liveThroughSessions(turns);
const effects = await openWorkApi({ after });
await liveThroughWork(effects);
const worlds = [
  { kernel: bench.kernel, corruptions },
  { kernel: turns.kernel, corruptions: sessionCorruptions },
  { kernel: effects.bench.kernel, corruptions: workCorruptions },
];

async function superuserOf(kernel: Kernel): Promise<Client> {
  const client = new Client(kernel.database.superuser);
  client.on("error", () => undefined);
  await client.connect();
  kernel.after(() => client.end());
  return client;
}

/** As `findViolations` would, inside the transaction that broke something. */
async function violationsOf(client: Client, { role, of, find }: Invariant): Promise<readonly Violation[]> {
  await client.query(`set local role holdfast_${role}`);
  const tenant = of === "tenant" ? "tenant-a" : "";
  await client.query("select set_config('holdfast.tenant', $1, true)", [tenant]);
  const tx: Transaction = {
    now: instant(0n),
    run: (statement, params) => runOn(client, statement, params),
  };
  const found = await find(tx, 20);
  await client.query("reset role");
  return found;
}

async function afterBreaking<T>(client: Client, sql: string, body: () => Promise<T>): Promise<T> {
  await client.query("begin");
  try {
    await client.query("set local session_replication_role = replica");
    await client.query(sql);
    return await body();
  } finally {
    await client.query("rollback");
  }
}

test("a store that has lived breaks nothing", async () => {
  for (const { kernel } of worlds) await assertInvariants(kernel.database);
});

test("each invariant finds what breaks it, and says of which resource", async (t) => {
  const unseen: string[] = [];
  for (const world of worlds) {
    const client = await superuserOf(world.kernel);
    for (const { check, sql } of world.corruptions) {
      const invariant = allInvariants.find(({ name }) => name === check);
      assert(invariant !== undefined, check);
      const found = await afterBreaking(client, sql, () => violationsOf(client, invariant)).catch(
        (error: unknown) => {
          throw new Error(`${check}: ${sql}`, { cause: error });
        },
      );
      if (found.length === 0) unseen.push(`${check} does not find: ${sql}`);
      for (const { resource, problem } of found) {
        assert(resource !== "" && resource.length < 1000, check);
        assert(problem !== "", check);
      }
    }
  }
  assert.deepEqual(unseen, []);
  const all = worlds.flatMap((world) => world.corruptions);
  t.diagnostic(`${all.length} corruptions, ${allInvariants.length} invariants`);
});

test("no invariant is without something that breaks it, and each has a name of its own", () => {
  const names = allInvariants.map(({ name }) => name);
  assert.deepEqual(
    new Set(worlds.flatMap((world) => world.corruptions.map(({ check }) => check))),
    new Set(names),
  );
  assert.equal(new Set(names).size, names.length);
});
