import assert from "node:assert/strict";
import { test } from "node:test";
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
