import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { isHoldfastError } from "../../src/core/errors.ts";
import { brandId, type IncarnationId, uuidv7 } from "../../src/core/ids.ts";
import { seconds } from "../../src/core/time.ts";
import { defineWork, WorkFailure } from "../../src/work/define.ts";
import { openWork, submit, submitAll } from "../../src/work/open.ts";
import { openedWork } from "../../src/work/opened.ts";
import { legacy } from "../../src/work/policy.ts";
import { type EffectSafety } from "../../src/work/safety.ts";
import { claimWork, turnWork } from "../../src/work/turn.store.ts";
import { registerVersion } from "../../src/work/version.store.ts";
import { disableTenant, resumeWork } from "../../src/work/work.store.ts";
import { openProxy } from "../support/proxy.ts";
import { until } from "../support/until.ts";
import { type WorkStand, workStand } from "../support/work.ts";
import { watchStatements } from "../support/work-moments.ts";

const many = (count: number, more: object = {}) =>
  Array.from({ length: count }, (_, n) => ({ input: { n }, ...more }));

const history = (stand: WorkStand) =>
  stand.ask<{ work_id: string; state: string; result: unknown; attempts: number }>(
    "select work_id, state, result, attempts from holdfast.work_history",
  );

/** Counts its calls by item. */
function counted(
  name: string,
  safety: Exclude<EffectSafety, "reconcile_before_retry">,
  answer?: (n: number) => unknown,
) {
  const calls = new Map<string, number>();
  const work = defineWork<{ readonly n: number }, unknown>({
    name,
    version: "1",
    safety,
    policy: legacy({ initial: seconds(0), longest: seconds(0) }),
    run({ n }, { id }) {
      calls.set(id, (calls.get(id) ?? 0) + 1);
      return answer?.(n) ?? null;
    },
  });
  return { work, calls };
}

test("W5: a batch with rows that the database refuses is halved until they are alone: all others are settled once", async (t) => {
  const stand = await workStand(t);
  // Of numbers the database needs more than their text is long: only it sees that these are too large.
  const large = Array.from({ length: 60_000 }, () => 1);
  const poisons = new Map<number, unknown>([
    [13, large],
    [14, { deep: [large] }],
    [40, large],
  ]);
  const { work, calls } = counted("poison", "manual_resolution", (n) => poisons.get(n) ?? { n });
  await stand.work.register(work);
  const submitted = await submitAll(stand.work, work, many(60));
  await stand.worker({ works: [work], concurrency: 60 });
  await until("all of it is settled", async () => (await history(stand)).length === 60);
  const results = new Map((await history(stand)).map((row) => [row.work_id, row]));
  for (const [n, { id }] of submitted.entries()) {
    const row = results.get(id);
    assert.deepEqual(
      [row?.state, row?.result, row?.attempts, calls.get(id)],
      ["succeeded", poisons.has(n) ? null : { n }, 1, 1],
      "its effect has happened: only what can't be stored of it is left out",
    );
  }
  assert.equal(stand.errors.filter((text) => text.startsWith("one item of work was refused")).length, 3);
});

test("W5: an item whose permit the database refuses keeps no other from its own", async (t) => {
  const stand = await workStand(t);
  const { work, calls } = counted("broken", "idempotent");
  await stand.work.register(work);
  const submitted = await submitAll(stand.work, work, many(40));
  const broken = submitted[17]?.id ?? "";
  await stand.ask("delete from holdfast.work_items where work_id = $1", [broken]);
  await stand.worker({ works: [work], concurrency: 40 });
  await until("the others are settled", async () => (await history(stand)).length === 39);
  assert.equal(calls.has(broken), false);
  assert.ok([...calls.values()].every((count) => count === 1));
});

test("W5: a failure whose message the database could not store is a failure like any other", async (t) => {
  const stand = await workStand(t);
  const thrown: readonly unknown[] = [new Error("a\u0000b"), Object.create(null), "\ud800", undefined];
  const fail = defineWork<{ readonly n: number }, void>({
    name: "fail",
    version: "1",
    safety: "idempotent",
    policy: legacy({ attempts: 1 }),
    run({ n }) {
      throw thrown[n];
    },
  });
  await stand.work.register(fail);
  await submitAll(stand.work, fail, many(thrown.length));
  await stand.worker({ works: [fail] });
  await until("all have failed", async () => (await history(stand)).length === thrown.length);
  assert.deepEqual(new Set((await history(stand)).map(({ state }) => state)), new Set(["failed"]));
  assert.deepEqual(stand.errors, []);
});

for (const lost of ["claim", "permit", "settle"] as const) {
  for (const safety of ["idempotent", "manual_resolution"] as const) {
    test(`W5: the answer to a ${lost} is lost after its commit: ${safety} work runs once and is settled once`, async (t) => {
      const stand = await workStand(t);
      const proxy = await openProxy(t, stand.database.app);
      const work = openedWork(
        await openWork({ database: proxy.settings, tenant: "acme", name: "deaf", onError: () => undefined }),
      );
      t.after(() => work.close());
      let swallowed = 0;
      watchStatements(work.db.pools, (moment) => {
        if (moment !== `before ${lost}` || swallowed > 0) return;
        swallowed += 1;
        proxy.swallow();
      });
      const { work: charge, calls } = counted("charge", safety);
      await work.register(charge);
      await submitAll(stand.work, charge, many(20));
      const told: string[] = [];
      const onSettled = (_: string, what: string) => void told.push(what);
      const worker = await stand.worker(
        { works: [charge], concurrency: 20, lease: seconds(6), onSettled },
        work,
      );
      await until("all of it is settled", async () => (await history(stand)).length === 20, 40_000);
      await worker.stop();
      assert.equal(swallowed, 1);
      assert.equal(told.length, 20, told.join());
      assert.ok(told.every((what) => what === "finished" || what === "settled"));
      assert.deepEqual(
        [...calls.values()],
        Array.from({ length: 20 }, () => 1),
      );
      assert.ok(
        (await history(stand)).every(({ state, attempts }) => state === "succeeded" && attempts === 1),
      );
      assert.deepEqual(await stand.ask("select from holdfast.work_observations"), []);
      assert.deepEqual(await stand.ask("select from holdfast.work_attempts where outcome = 'unknown'"), []);
    });
  }
}

test("W9: the answer to a submission is lost after its commit: the same again resolves to what was accepted", async (t) => {
  const stand = await workStand(t);
  const proxy = await openProxy(t, stand.database.app);
  const work = openedWork(
    await openWork({ database: proxy.settings, tenant: "acme", name: "deaf", onError: () => undefined }),
  );
  t.after(() => work.close());
  const { work: charge } = counted("charge", "idempotent");
  await work.register(charge);
  const unavailable = (error: unknown) => isHoldfastError(error, "unavailable");
  await submit(work, charge, { n: 0 });
  proxy.swallow();
  await assert.rejects(submit(work, charge, { n: 1 }, { key: "one" }), unavailable);
  assert.equal((await submit(work, charge, { n: 1 }, { key: "one" })).duplicate, true);
  // In several calls and one COMMIT, whose answer is the one that is lost.
  const items = Array.from({ length: 700 }, (_, n) => ({ input: { n }, key: `many-${n}` }));
  const pool = work.db.pools.of("producer");
  pool.once("acquire", (client) => {
    const query = client.query.bind(client) as (...args: unknown[]) => unknown;
    client.query = ((...args: unknown[]) => {
      if (args[0] === "commit") proxy.swallow();
      return query(...args);
    }) as typeof client.query;
  });
  await assert.rejects(submitAll(work, charge, items), unavailable);
  const again = await submitAll(work, charge, items);
  assert.ok(again.every(({ duplicate }) => duplicate));
  assert.deepEqual(await stand.ask("select count(*)::int as n from holdfast.work_items"), [{ n: 702 }]);
});

test("W5: handlers in flight and permits of strict work never exceed the concurrency; of other work permits may wait", async (t) => {
  const stand = await workStand(t);
  for (const safety of ["manual_resolution", "idempotent"] as const) {
    const gate = Promise.withResolvers<null>();
    let [here, most] = [0, 0];
    const hold = defineWork<unknown, null>({
      name: `hold-${safety.replaceAll("_", "-")}`,
      version: "1",
      safety,
      policy: legacy(),
      async run() {
        here += 1;
        most = Math.max(most, here);
        await gate.promise;
        here -= 1;
        return null;
      },
    });
    await stand.work.register(hold);
    await submitAll(stand.work, hold, many(50));
    const worker = await stand.worker({ works: [hold], concurrency: 4 });
    await until("as many run as may", () => here === 4);
    const permits = async () =>
      (await stand.ask("select from holdfast.leases_work where work_state = 'permitted'")).length;
    if (safety === "manual_resolution") assert.equal(await permits(), 4);
    gate.resolve(null);
    await until("all of it has run", async () => {
      if (safety === "manual_resolution") assert.ok((await permits()) <= 4);
      return (await stand.ask("select from holdfast.leases_work")).length === 0;
    });
    await worker.stop();
    assert.equal(most, 4);
  }
});

test("W11: no more reconcilers run at a time than handlers may", async (t) => {
  const stand = await workStand(t);
  let [here, most, asked] = [0, 0, 0];
  const gate = Promise.withResolvers<void>();
  const charge = defineWork<unknown, null>({
    name: "charge",
    version: "1",
    safety: "reconcile_before_retry",
    policy: legacy(),
    run: () => null,
    async reconcile() {
      asked += 1;
      here += 1;
      most = Math.max(most, here);
      await gate.promise;
      here -= 1;
      return { applied: true };
    },
  });
  const number = await registerVersion(stand.work.db, charge);
  await submitAll(stand.work, charge, many(30));
  const holder = brandId<IncarnationId>(uuidv7());
  const lanes = [`${number}.default`];
  const { claimed } = await claimWork(stand.work.db, { holder, lanes, limit: 100, leaseUs: seconds(30) });
  assert.equal((await turnWork(stand.work.db, holder, [], claimed)).permitted.length, 30);
  await stand.ask("update holdfast.leases_work set wake_at = clock_timestamp()");
  await stand.worker({ works: [charge], concurrency: 3 });
  await until("as many are asked as may be", () => here === 3);
  gate.resolve();
  await until("all are proven", async () => (await history(stand)).length === 30);
  assert.deepEqual([most, asked], [3, 30]);
});

test("W5: one turn settles and permits for as many tenants as it has items of", async (t) => {
  const stand = await workStand(t);
  const proxy = await openProxy(t, stand.database.app);
  const work = openedWork(
    await openWork({ database: proxy.settings, name: "turns", onError: () => undefined }),
  );
  t.after(() => work.close());
  const { work: noop } = counted("noop", "idempotent");
  await work.register(noop);
  const [row] = await stand.ask<{ lane: string }>(
    "select version_number || '.default' as lane from holdfast.work_versions",
  );
  const tenants = Array.from({ length: 100 }, (_, n) => `tenant-${n}`);
  await stand.ask("insert into holdfast.tenants (tenant_id) select unnest($1::text[])", [tenants]);
  for (const tenant of tenants) await submitAll(work, noop, many(3), { tenant });
  const holder = brandId<IncarnationId>(uuidv7());
  const lanes = [row?.lane ?? ""];
  const claim = { holder, lanes, limit: 300, leaseUs: seconds(30) };
  await claimWork(work.db, { ...claim, lanes: [] });
  await turnWork(work.db, holder, [], []);
  const asked = proxy.queries();
  const { claimed } = await claimWork(work.db, claim);
  const { permitted } = await turnWork(work.db, holder, [], claimed.slice(0, 200));
  const done = permitted.map((item) => ({ item, outcome: { type: "succeeded", result: "1" } as const }));
  const last = await turnWork(work.db, holder, done, claimed.slice(200));
  assert.equal(proxy.queries() - asked, 3, "a claim and two turns");
  assert.deepEqual([permitted.length, last.permitted.length, last.unmatched.length], [200, 100, 0]);
  assert.equal(new Set(claimed.map(({ tenant }) => tenant)).size, 100);
  // What was accepted is not written again: no item has been since the transaction that made it.
  const touched = await stand.ask("select from holdfast.work_items where xmax <> 0");
  assert.deepEqual(touched, []);
});

test("W11: a tenant is disabled while workers claim its 10,000 items: each has run once or is suspended, and none begins afterwards", async (t) => {
  const stand = await workStand(t);
  // Slow enough that they are still at it when the tenant is disabled.
  const { work: noop, calls } = counted("noop", "idempotent", () => delay(2, null));
  await stand.work.register(noop);
  const items = Array.from({ length: 10_000 }, () => ({ input: { n: 0 } }));
  await submitAll(stand.work, noop, items);
  const workers = [await stand.worker({ works: [noop], concurrency: 2 })];
  workers.push(await stand.worker({ works: [noop], concurrency: 2 }, await stand.open("second")));
  await until("some of it has run", () => calls.size > 50);
  const suspended = await disableTenant(stand.work.db, stand.tenant);
  const begun = calls.size;
  assert.ok(suspended > 0n, "they were still at it");
  await assert.rejects(submit(stand.work, noop, { n: 1 }), (error) =>
    isHoldfastError(error, "tenant_disabled"),
  );
  for (const worker of workers) await worker.stop();
  const rows = await stand.ask<{ work_state: string; n: number }>(
    "select work_state, count(*)::int as n from holdfast.leases_work group by 1",
  );
  const ended = await history(stand);
  assert.deepEqual(rows, [{ work_state: "suspended", n: 10_000 - ended.length }]);
  assert.ok([...calls.values()].every((count) => count === 1));
  assert.equal(calls.size, ended.length);
  assert.ok(calls.size - begun <= 2 * 452, "only what had its permit already");
  const once = await stand.ask(
    "select from holdfast.work_suspensions where reason = 'tenant_disabled' and ended_at is null",
  );
  assert.equal(once.length, 10_000 - ended.length);
  // For good: nobody takes it back, and nothing of it goes on.
  await assert.rejects(stand.ask("update holdfast.tenants set disabled_at = null where tenant_id = 'acme'"), {
    code: "HF002",
  });
  const [one] = await stand.ask<{ id: string }>("select resource_id as id from holdfast.leases_work limit 1");
  const ask = { tenant: stand.tenant, work: one?.id ?? "", by: "ops" };
  for (const how of ["released", "requeued"] as const) {
    await assert.rejects(resumeWork(stand.work.db, { ...ask, how }), (error) =>
      isHoldfastError(error, "tenant_disabled"),
    );
  }
});

test("W5: what the database refuses to settle is renewed no longer, and goes to whoever recovers it", async (t) => {
  const stand = await workStand(t);
  const fail = defineWork<{ readonly n: number }, void>({
    name: "fail",
    version: "1",
    safety: "manual_resolution",
    policy: legacy(),
    async run(_, { id }) {
      await stand.ask("delete from holdfast.work_items where work_id = $1", [id]);
      throw new WorkFailure("no", "no");
    },
  });
  await stand.work.register(fail);
  await submit(stand.work, fail, { n: 0 });
  await stand.worker({ works: [fail], lease: seconds(3) });
  await until("its failure is refused", () =>
    stand.errors.some((text) => text.startsWith("one item of work was refused")),
  );
  await until(
    "its lease ends",
    async () =>
      (
        await stand.ask(
          "select from holdfast.leases_work where work_state = 'permitted' and wake_at <= clock_timestamp()",
        )
      ).length === 1,
  );
});
