import assert from "node:assert/strict";
import { test } from "node:test";
import { uuidv7 } from "../../src/core/ids.ts";
import { type Database, transition } from "../../src/core/postgres/transition.ts";
import { admitActivation, cancelActivation } from "../../src/sessions/activation.store.ts";
import { memoryRuntime } from "../support/memory-runtime.ts";
import { sessionsOf } from "../support/sessions.ts";
import { testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

/** More of them, as in a measurement, by the environment. */
const sessionCount = Number(process.env["HOLDFAST_TEST_SESSIONS"] ?? 100);
/** Turns a session, on average: some get none, some several at once. */
const turnsEach = 1.2;

/** The same numbers again: a failure is seen again with its seed. */
function numbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Counts what is asked of the database. */
function counted(db: Database): { readonly db: Database; readonly queries: () => number } {
  let queries = 0;
  const watched = new Set<unknown>();
  const { pools } = db;
  const of: typeof pools.of = (role) => {
    const pool = pools.of(role);
    if (!watched.has(pool)) {
      watched.add(pool);
      pool.on("connect", (client) => {
        const query = client.query.bind(client);
        client.query = ((...words: Parameters<typeof query>) => {
          queries += 1;
          return query(...words);
        }) as typeof client.query; // the same function, counted
      });
    }
    return pool;
  };
  return { db: { ...db, pools: { ...pools, of } }, queries: () => queries };
}

test(`S7 S12: ${sessionCount} sessions, two controllers, faults: nothing is lost, nothing twice, everything is true after`, {
  timeout: 900_000,
}, async (t) => {
  const seed = Number(process.env["HOLDFAST_TEST_SEED"] ?? Date.now() % 100_000);
  const random = numbers(seed);
  const stack = await testStack(t);
  let faults = 0;
  let calm = false;
  const runtime = memoryRuntime(
    () => {
      const failed = random() < 0.05;
      return {
        lines: [
          '{"type":"start","protocol":1}',
          '{"type":"event","name":"told","data":{}}',
          ...(failed ? [] : ['{"type":"outcome","reply":{"ok":true}}']),
        ],
        exitCode: failed ? 9 : 0,
      };
    },
    (call) => {
      if (calm || random() > 0.02) return;
      faults += 1;
      throw new Error(`the world failed at ${call}`);
    },
  );
  const counters = [];
  for (const name of ["one", "two"]) {
    const foundation = await stack.foundation(name, { leaseMs: 5_000 });
    const counter = counted(foundation.db);
    counters.push(counter);
    await stack.controller({ ...foundation, db: counter.db }, { runtime });
  }
  const own = await stack.foundation("gateway");
  const sessions = sessionsOf(own.db, stack.tenant);
  await sessions.agent("notes", { command: ["unused"], tries: 5 });
  const ids: string[] = [];
  for (let made = 0; made < sessionCount; made += 1) ids.push(await sessions.create("notes"));

  const began = performance.now();
  const before = counters.reduce((sum, { queries }) => sum + queries(), 0);
  /** Somebody takes leases away, cuts connections and sends everything twice, for as long as turns arrive. */
  const disturb = async () => {
    await stack.rows(
      `update holdfast.leases set wake_at = holdfast.ledger_now() where (tenant_id, kind, resource_id) in (
         select tenant_id, kind, resource_id from holdfast.leases
         where kind in ('session', 'activation') and holder is not null order by random() limit 3 for update skip locked)`,
    );
    await stack.rows(
      `select pg_terminate_backend(pid) from pg_stat_activity
       where datname = current_database() and application_name like 'holdfast/%' and pid <> pg_backend_pid()
       order by random() limit 1`,
    );
    faults += 4;
  };
  const sent: { readonly session: string; readonly id: string }[] = [];
  const arrivals = Array.from({ length: Math.ceil(sessionCount * turnsEach) }, () => {
    return ids[Math.floor(random() * ids.length)] ?? "";
  });
  const admit = (session: string, id: string) =>
    transition(own.db, { role: "gateway", tenant: stack.tenant, name: "admit" }, (tx) =>
      admitActivation(tx, { session, id, stimulus: { text: "hello" }, queueMax: 100 }),
    );
  for (const [index, session] of arrivals.entries()) {
    const id = uuidv7();
    sent.push({ session, id });
    await Promise.all(
      [admit(session, id), ...(index % 10 === 0 ? [admit(session, id)] : [])].map(again(admit, session, id)),
    );
    if (index % 50 === 49) await disturb();
    if (index % 40 === 39) {
      await sessions
        .change("cancel", (tx) => cancelActivation(tx, { session, activation: id, reason: "not needed" }))
        .catch(() => undefined);
    }
  }
  calm = true;
  await until(
    "every turn has ended and is cleaned, and nothing is held",
    async () => {
      const [open] = await stack.rows<{ open: number }>(
        `select (select count(*) from holdfast.activations where cleaned_at is null)::int
           + (select count(*) from holdfast.leases where kind in ('session', 'activation'))::int as open`,
      );
      return open?.open === 0;
    },
    600_000,
  );
  const seconds = (performance.now() - began) / 1000;
  const queries = counters.reduce((sum, counter) => sum + counter.queries(), 0) - before;

  const ends = await stack.rows<{ state: string; count: number }>(
    "select state, count(*)::int as count from holdfast.activations group by state order by state",
  );
  const total = ends.reduce((sum, { count }) => sum + count, 0);
  assert.equal(total, sent.length, "each was admitted once");
  assert.ok(ends.every(({ state }) => ["committed", "cancelled", "failed"].includes(state)));
  assert.ok(
    [...runtime.starts.values()].every((count) => count === 1),
    "no sandbox started twice",
  );
  assert.equal(runtime.objects(), 0, "nothing is left outside");
  const committed = ends.find(({ state }) => state === "committed")?.count ?? 0;
  const [facts] = await stack.rows<{ heads: number; replies: number }>(
    `select (select sum(head_revision) from holdfast.cloud_sessions)::int as heads,
       (select count(*) from holdfast.publication_outbox)::int as replies`,
  );
  assert.deepEqual(facts, { heads: committed, replies: committed });
  // Bounded by what a turn does: what waits, for room or for anything else, is not asked about again and again.
  assert.ok(queries / total < 300, `${(queries / total).toFixed(1)} queries a turn`);
  t.diagnostic(
    `seed ${seed}: ${total} turns (${ends.map(({ state, count }) => `${count} ${state}`).join(", ")}), ${faults} faults, ` +
      `${seconds.toFixed(1)} s, ${((seconds * 1000) / total).toFixed(1)} ms and ${(queries / total).toFixed(1)} queries a turn`,
  );
});

/** A connection may be cut under it: whoever sends it sends it again, under the same id. */
function again(
  admit: (session: string, id: string) => Promise<unknown>,
  session: string,
  id: string,
): (first: Promise<unknown>) => Promise<unknown> {
  return (first) => first.catch(() => admit(session, id));
}
