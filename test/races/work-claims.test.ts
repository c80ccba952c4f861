import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import type { Pool } from "pg";
import { brandId, type IncarnationId, uuidv7 } from "../../src/core/ids.ts";
import { connect, defaultPoolLimits, openPools, type Role } from "../../src/core/postgres/pool.ts";
import type { Database } from "../../src/core/postgres/transition.ts";
import { seconds } from "../../src/core/time.ts";
import { defineWork } from "../../src/work/define.ts";
import { openWork, submit, submitAll } from "../../src/work/open.ts";
import { legacy } from "../../src/work/policy.ts";
import { type Cursor, claimWork, recoverWork, turnWork } from "../../src/work/turn.store.ts";
import { registerVersion } from "../../src/work/version.store.ts";
import { liveEdges, liveStates } from "../../src/work/work.ts";
import { tableWalks } from "../support/table-walks.ts";
import { until } from "../support/until.ts";
import { workStand } from "../support/work.ts";

const noop = defineWork<unknown, null>({
  name: "noop",
  version: "1",
  safety: "idempotent",
  policy: legacy(),
  run: () => null,
});

/** The same, which says what it ran. */
const counting = (ran: string[]) =>
  defineWork<unknown, void>({
    name: "noop",
    version: "1",
    safety: "idempotent",
    policy: legacy(),
    run: (_, { id }) => void ran.push(id),
  });

test("W5: 32 claimers on 8 connections: each item has one owner and one permit", async (t) => {
  const { work, database, ask } = await workStand(t);
  const number = await registerVersion(work.db, noop);
  await submitAll(
    work,
    noop,
    Array.from({ length: 400 }, () => ({ input: 0 })),
  );
  const pools = openPools({
    settings: database.app,
    name: "claimers",
    limits: { ...defaultPoolLimits, connectionsMax: 8 },
  });
  const db = { ...work.db, pools };
  const owners = new Map<string, string[]>();
  try {
    await Promise.all(
      Array.from({ length: 32 }, async () => {
        const holder = brandId<IncarnationId>(uuidv7());
        for (;;) {
          const { claimed } = await claimWork(db, {
            holder,
            lanes: [`${number}.default`],
            limit: 7,
            leaseUs: seconds(30),
          });
          if (claimed.length === 0) return;
          const { permitted, passed } = await turnWork(db, holder, [], claimed);
          assert.deepEqual(passed, []);
          for (const { id } of permitted) owners.set(id, [...(owners.get(id) ?? []), holder]);
        }
      }),
    );
  } finally {
    await pools.close();
  }
  assert.equal(owners.size, 400);
  assert.deepEqual(
    [...owners.values()].filter((held) => held.length !== 1),
    [],
  );
  const rows = await ask("select from holdfast.leases_work where work_state <> 'permitted' or attempt <> 1");
  assert.deepEqual(rows, []);
});

test("W7: a worker is fair: a tenant's backlog delays no other tenant's item", async (t) => {
  const { work } = await workStand(t);
  const number = await registerVersion(work.db, noop);
  await submitAll(
    work,
    noop,
    Array.from({ length: 300 }, () => ({ input: 0 })),
  );
  const { id } = await submit(work, noop, 0, { tenant: "other" });
  const holder = brandId<IncarnationId>(uuidv7());
  const { claimed } = await claimWork(work.db, {
    holder,
    lanes: [`${number}.default`],
    limit: 20,
    leaseUs: seconds(30),
  });
  assert.ok(claimed.some((item) => item.id === id));
});

test("W7: a claim gives every line of which there is more, whoever waits longest first", async (t) => {
  const { work, ask } = await workStand(t);
  const number = await registerVersion(work.db, noop);
  const tenants = Array.from({ length: 40 }, (_, n) => `t${99 - n}`);
  await ask("insert into holdfast.tenants (tenant_id) select unnest($1::text[])", [tenants]);
  for (const tenant of tenants) await submitAll(work, noop, [{ input: 0 }, { input: 0 }], { tenant });
  const { cursors } = await claimWork(work.db, {
    holder: brandId<IncarnationId>(uuidv7()),
    lanes: [`${number}.default`],
    limit: tenants.length,
    leaseUs: seconds(30),
  });
  assert.deepEqual(
    cursors.map(([, , tenant]) => tenant),
    tenants,
  );
});

test("W7: a turn begins with the lines that the one before did not reach, the most urgent first", async (t) => {
  const { work } = await workStand(t);
  const number = await registerVersion(work.db, noop);
  const tenants = ["acme", "other"];
  for (const tenant of tenants) await submitAll(work, noop, [{ input: 0 }, { input: 0 }], { tenant });
  await submitAll(
    work,
    noop,
    [0, 0].map((input) => ({ input, priority: 0 })),
    { tenant: "other" },
  );
  const holder = brandId<IncarnationId>(uuidv7());
  const id = "00000000-0000-0000-0000-000000000000";
  const line = (priority: number, tenant: string): Cursor => [
    `${number}.default`,
    priority,
    tenant,
    "-infinity",
    id,
  ];
  let lines = [line(0, "other"), ...tenants.map((tenant) => line(2, tenant))];
  const served: string[] = [];
  for (let n = 0; n < 7; n += 1) {
    const turn = await turnWork(work.db, holder, [], [], { lines, limit: 1, leaseUs: seconds(30) });
    served.push(...turn.permitted.map(({ tenant }) => tenant));
    lines = [...turn.cursors];
  }
  assert.deepEqual(served, ["other", "other", "acme", "other", "acme", "other"]);
});

test("W2: a worker claims only what it has: other versions wait, and cost it nothing", async (t) => {
  const { work } = await workStand(t);
  const next = defineWork({
    name: "noop",
    version: "2",
    safety: "idempotent",
    policy: legacy(),
    run: () => null,
  });
  const [one, two] = [await registerVersion(work.db, noop), await registerVersion(work.db, next)];
  await submit(work, noop, 0);
  const newer = await submit(work, next, 0);
  const holder = brandId<IncarnationId>(uuidv7());
  assert.notEqual(one, two);
  const { claimed } = await claimWork(work.db, {
    holder,
    lanes: [`${two}.default`],
    limit: 20,
    leaseUs: seconds(30),
  });
  assert.deepEqual(
    claimed.map(({ id }) => id),
    [newer.id],
  );
});

test("W5: no query of the hot path walks a table, with waiting, later and finished rows beside it", async (t) => {
  const { work, ask } = await workStand(t);
  const number = await registerVersion(work.db, noop);
  const many = (options: object) => Array.from({ length: 1500 }, () => ({ input: 0, ...options }));
  await submitAll(work, noop, many({ delay: seconds(3600) }));
  await submitAll(work, noop, many({ queue: "others" }));
  await ask("analyze holdfast.leases_work, holdfast.work_items, holdfast.work_history");
  const before = await tableWalks(ask);
  await submitAll(work, noop, many({}), { tenant: "other" });
  const holder = brandId<IncarnationId>(uuidv7());
  for (;;) {
    const { claimed } = await claimWork(work.db, {
      holder,
      lanes: [`${number}.default`],
      limit: 100,
      leaseUs: seconds(30),
    });
    if (claimed.length === 0) break;
    const { permitted } = await turnWork(work.db, holder, [], claimed);
    const done = permitted.map((item) => ({ item, outcome: { type: "succeeded", result: "1" } as const }));
    assert.deepEqual((await turnWork(work.db, holder, done, [])).unmatched, []);
  }
  // Backends tell their counts when they end.
  await work.close();
  await until("the counts have come", async () => {
    const [row] = await ask<{ n: number }>(
      "select n_tup_ins::int as n from pg_stat_user_tables where relname = 'work_history'",
    );
    return row?.n === 1500;
  });
  assert.deepEqual(await tableWalks(ask), before);
  const [hot] = await ask<{ share: number }>(
    "select n_tup_hot_upd::float8 / n_tup_upd as share from pg_stat_user_tables where relname = 'leases_work'",
  );
  assert.ok((hot?.share ?? 0) > 0.5, `most claims and permits write no index: ${hot?.share}`);
});

test("W5: only a claim's commit is not waited for: a permit's is, and so is a recovery's", async (t) => {
  const { work, database, ask } = await workStand(t);
  const number = await registerVersion(work.db, noop);
  await submit(work, noop, 0);
  const holder = brandId<IncarnationId>(uuidv7());
  /** What `synchronous_commit` is at the end of the call's transaction, and after it. */
  const during = async <T>(role: Role, call: (db: Database) => Promise<T>) => {
    const client = await connect(database.app, role, "test");
    const shown = async () => {
      const { rows } = await client.query<{ synchronous_commit: string }>("show synchronous_commit");
      return rows[0]?.synchronous_commit;
    };
    try {
      await client.query("begin");
      // Whoever has the pool's `query` has all that a statement alone needs.
      const of = () => client as unknown as Pool;
      const answer = await call({ ...work.db, pools: { ...work.db.pools, of } });
      const inside = await shown();
      await client.query("commit");
      return { answer, waits: [inside, await shown()] };
    } finally {
      await client.end();
    }
  };
  const claim = await during("dispatcher", (db) =>
    claimWork(db, { holder, lanes: [`${number}.default`], limit: 10, leaseUs: seconds(30) }),
  );
  assert.deepEqual([claim.answer.claimed.length, claim.waits], [1, ["off", "on"]]);
  const { claimed } = claim.answer;
  const turn = await during("worker", (db) => turnWork(db, holder, [], claimed));
  assert.deepEqual([turn.answer.permitted.length, turn.waits], [1, ["on", "on"]]);
  await ask("update holdfast.leases_work set wake_at = clock_timestamp()");
  const recovery = await during("worker", (db) => recoverWork(db, claimed));
  assert.deepEqual([recovery.answer, recovery.waits], [["retry"], ["on", "on"]]);
});

interface Asked {
  readonly name?: string;
  readonly values?: readonly unknown[];
}

/** Hears what is asked of the database through a handle, before it is sent and when it is answered. */
function overhear({ db }: { readonly db: Database }, heard: (asked: Asked, answered: boolean) => void): void {
  for (const role of ["worker", "dispatcher"] as const) {
    const pool = db.pools.of(role);
    const query = pool.query.bind(pool) as (asked: Asked) => Promise<unknown>;
    Object.assign(pool, {
      query(asked: Asked) {
        heard(asked, false);
        return query(asked).finally(() => heard(asked, true));
      },
    });
  }
}

/** How many a turn may take: the last value but one. */
const takes = ({ values = [] }: Asked) => Number(values.at(-2));
/** The fourth is an array of the places of what it settles, as PostgreSQL writes it. */
const settles = ({ values = [] }: Asked) => values[3] !== "{}";

test("W5: what comes into a line that was emptied is taken by a turn that looks there first, and a claim finds what is elsewhere", async (t) => {
  const { work, worker, open, ask } = await workStand(t);
  const listener = await open("listener");
  const claimsBefore: number[] = [];
  let [claims, askedAtMs] = [0, 0];
  overhear(listener, ({ name }) => {
    askedAtMs = performance.now();
    if (name === "turn.claimWork") claims += 1;
  });
  const counted = defineWork<unknown, void>({
    name: "noop",
    version: "1",
    safety: "manual_resolution",
    policy: legacy(),
    run: () => void claimsBefore.push(claims),
  });
  await worker({ works: [counted], concurrency: 10 }, listener);
  const rests = async () => {
    await until(
      "all of it is finished",
      async () => (await ask("select from holdfast.leases_work")).length === 0,
    );
    await until("nothing more is asked", () => performance.now() - askedAtMs > 200);
    claims = 0;
  };
  await submit(work, counted, 1);
  await rests();
  await submit(work, counted, 2);
  await rests();
  assert.equal(claimsBefore[1], 0);
  // Nothing is where the guess looks.
  await submit(work, counted, 3, { tenant: "other" });
  await rests();
  assert.ok((claimsBefore[2] ?? 0) > 0);
  await submit(work, counted, 4, { priority: 0 });
  await rests();
  assert.equal(claimsBefore.length, 4);
});

test("W11: items of a strict class are permitted by one turn while another settles, and never more of them than handlers are free", async (t) => {
  const { work, worker, open, ask } = await workStand(t);
  const listener = await open("listener");
  const concurrency = 20;
  const sent = new Set<Asked>();
  let [running, most, mostAsked, overlaps] = [0, 0, 0, 0];
  let [settling, taken] = [0, 0];
  overhear(listener, (asked, answered) => {
    if (asked.name !== "turn.turnWork") return;
    if (answered) return void sent.delete(asked);
    sent.add(asked);
    if (settles(asked)) settling += 1;
    if (takes(asked) > 0) taken += 1;
    const all = [...sent];
    const permits = all.reduce((sum, one) => sum + takes(one), 0);
    mostAsked = Math.max(mostAsked, permits + running);
    const taking = all.some((one) => takes(one) > 0 && !settles(one));
    if (taking && all.some((one) => settles(one) && takes(one) === 0)) overlaps += 1;
  });
  const strict = defineWork<unknown, void>({
    name: "noop",
    version: "1",
    safety: "manual_resolution",
    policy: legacy(),
    async run() {
      running += 1;
      most = Math.max(most, running);
      await Promise.resolve();
      running -= 1;
    },
  });
  await work.register(strict);
  await submitAll(
    work,
    strict,
    Array.from({ length: 1_000 }, () => ({ input: 0 })),
  );
  await worker({ works: [strict], concurrency }, listener);
  await until(
    "all of it is settled",
    async () => (await ask("select from holdfast.leases_work")).length === 0,
    60_000,
  );
  assert.ok(most <= concurrency && mostAsked <= concurrency, `${most} ran, ${mostAsked} were asked for`);
  assert.ok(overlaps > 0);
  // What has finished waits for more of its kind, while there are permits to take.
  assert.ok(settling < 0.75 * taken, `${settling} of turns settled, ${taken} took`);
  const rows = await ask<{ state: string; attempts: number; n: number }>(
    "select state, attempts, count(*)::int as n from holdfast.work_history group by 1, 2",
  );
  assert.deepEqual(rows, [{ state: "succeeded", attempts: 1, n: 1_000 }]);
});

test("W5: what a turn took whose answer comes late is not given back for another one whose answer was lost", async (t) => {
  const { ask, worker, work, open } = await workStand(t);
  await work.register(noop);
  const all = Array.from({ length: 3_000 }, () => ({ input: 0 }));
  await submitAll(work, noop, all);
  const shaky = await open("shaky");
  const pool = shaky.db.pools.of("worker");
  const query = pool.query.bind(pool) as (asked: Asked) => Promise<unknown>;
  const takesMany = (asked: Asked) => asked.name === "turn.turnWork" && takes(asked) > 100;
  const committed = Promise.withResolvers<undefined>();
  const readBack = Promise.withResolvers<undefined>();
  let [underWay, lost, late] = [0, 0, 0];
  Object.assign(pool, {
    async query(asked: Asked) {
      if (asked.name === "turn.takenWork") {
        await committed.promise;
        // What is found is known before the late answer is.
        return query(asked).finally(() => setTimeout(() => readBack.resolve(undefined), 50));
      }
      if (!takesMany(asked)) return query(asked);
      underWay += 1;
      const second = underWay === 2 && late === 0;
      if (second) late += 1;
      const answer = await query(asked);
      underWay -= 1;
      if (second) {
        committed.resolve(undefined);
        // With nobody who reads back before it, that takes so long.
        await Promise.race([readBack.promise, delay(500)]);
      } else if (late === 1 && lost === 0) {
        lost += 1;
        throw Object.assign(new Error("the answer was lost"), { code: "ECONNRESET" });
      }
      return answer;
    },
  });
  const ran: string[] = [];
  await worker({ works: [counting(ran)], concurrency: 10 }, shaky);
  await until(
    "all of it is settled",
    async () => (await ask("select from holdfast.leases_work")).length === 0,
    60_000,
  );
  assert.deepEqual([lost, late], [1, 1]);
  assert.deepEqual([new Set(ran).size, ran.length], [all.length, all.length]);
});

test("W5 W11: what was left unknown is no permit that nobody has used, when the answer to a later turn is lost", async (t) => {
  const { ask, worker, work, open } = await workStand(t);
  const ran: string[] = [];
  const call = defineWork<string, void>({
    name: "call",
    version: "1",
    safety: "manual_resolution",
    policy: legacy({ initial: seconds(0) }),
    run(input) {
      ran.push(input);
      if (input === "breaks") throw new Error("the connection broke");
    },
  });
  await work.register(call);
  const shaky = await open("shaky");
  const pool = shaky.db.pools.of("worker");
  const query = pool.query.bind(pool) as (asked: Asked) => Promise<unknown>;
  let losing = false;
  const known: string[] = [];
  Object.assign(pool, {
    async query(asked: Asked) {
      if (asked.name === "turn.takenWork") known.push(String(asked.values?.at(-1)));
      const answer = await query(asked);
      if (!losing || asked.name !== "turn.turnWork" || takes(asked) === 0) return answer;
      losing = false;
      throw Object.assign(new Error("the answer was lost"), { code: "ECONNRESET" });
    },
  });
  const settled: string[] = [];
  await worker({ works: [call], concurrency: 10, onSettled: (_, what) => settled.push(what) }, shaky);
  await submit(work, call, "breaks");
  await until("it is unknown", () => settled.includes("unknown"));
  const [left] = await ask<{ epoch: string }>("select epoch::text from holdfast.leases_work");
  losing = true;
  await submitAll(
    work,
    call,
    Array.from({ length: 100 }, (_, n) => ({ input: `n${n}` })),
  );
  await until("all others have run", () => settled.filter((what) => what === "finished").length === 100);
  assert.equal(losing, false);
  assert.ok(known.length > 0);
  for (const epochs of known) assert.ok(epochs.split(/[^0-9]+/).includes(left?.epoch ?? ""), epochs);
  assert.deepEqual([new Set(ran).size, ran.length], [101, 101]);
});

test("W5: a connection that is lost during a turn loses nothing: what was settled is settled once", async (t) => {
  const { database, ask, worker, work } = await workStand(t);
  await work.register(noop);
  const shaky = await openWork({
    database: database.app,
    tenant: "acme",
    name: "shaky",
    onError: () => undefined,
  });
  await submitAll(
    work,
    noop,
    Array.from({ length: 2_000 }, () => ({ input: 0 })),
  );
  const ran: string[] = [];
  const running = await worker({ works: [counting(ran)], concurrency: 10, lease: seconds(20) }, shaky);
  await until("some of it has run", () => ran.length > 100);
  const [backend] = await ask<{ n: number }>(
    "select count(pg_terminate_backend(pid))::int as n from pg_stat_activity where application_name = 'holdfast/shaky/worker'",
  );
  assert.ok((backend?.n ?? 0) > 0);
  await until(
    "all of it is settled",
    async () => {
      const [row] = await ask<{ n: number }>(
        "select count(*)::int as n from holdfast.work_history where state = 'succeeded'",
      );
      return row?.n === 2_000;
    },
    60_000,
  );
  assert.equal(new Set(ran).size, 2_000);
  assert.equal(ran.length, 2_000, "no permit was used twice");
  assert.deepEqual(await ask("select from holdfast.work_observations"), []);
  await running.stop();
  await shaky.close();
});

test("W5: the table of states is what the database's trigger lets through", async (t) => {
  const { work, ask } = await workStand(t);
  await registerVersion(work.db, noop);
  await submit(work, noop, 0);
  const accepted = new Set<string>();
  const beside = (state: string) =>
    `attempt = 1, holder = ${["leased", "permitted", "cancel_pending"].includes(state) ? "gen_random_uuid()" : "null"}, wake_at = due_at`;
  for (const from of liveStates) {
    for (const to of liveStates.filter((state) => state !== from)) {
      const edge = `do $$ begin
          set local session_replication_role = replica;
          update holdfast.leases_work set work_state = '${from}', ${beside(from)};
          set local session_replication_role = origin;
          update holdfast.leases_work set work_state = '${to}', ${beside(to)};
          raise exception using errcode = 'HF999';
        end $$`;
      const code = await ask(edge).then(
        () => "",
        (error: { code?: string }) => error.code ?? "",
      );
      if (code === "HF999") accepted.add(`${from}>${to}`);
      else assert.equal(code, "HF003", `${from}>${to}`);
    }
  }
  assert.deepEqual([...accepted].sort(), [...liveEdges()].sort());
});
