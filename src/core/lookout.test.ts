import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { appendAlone } from "../../test/support/changes.ts";
import { withClient } from "../../test/support/database.ts";
import { type Kernel, openKernel, tenantA } from "../../test/support/kernel.ts";
import { openProxy } from "../../test/support/proxy.ts";
import { until } from "../../test/support/until.ts";
import { uuidv7 } from "./ids.ts";
import { registerIncarnation } from "./incarnation.store.ts";
import { insertLease } from "./lease.store.ts";
import { look } from "./lookout.sql.ts";
import { startLookout } from "./lookout.ts";
import { monotonicMs } from "./monotonic.ts";
import { openDoorbell } from "./postgres/doorbell.ts";
import { startLeaseKeeper } from "./postgres/lease-keeper.ts";
import { openPools } from "./postgres/pool.ts";
import { runOn, transition } from "./postgres/transition.ts";
import { startSequencer } from "./sequencer.ts";
import { type Instant, instant } from "./time.ts";
import { startChangeReader } from "./watch.ts";

const fail = (error: unknown) => assert.fail(String(error));

/** A bell that only its test rings. */
function handBell() {
  const listeners = new Set<() => void>();
  return {
    ring: () => {
      for (const listener of listeners) listener();
    },
    onRing(listener: () => void) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}

function watchful(
  kernel: Pick<Kernel, "db" | "after">,
  options: { intervalMs?: number; afterRingMs?: number; onError?: (error: unknown) => void } = {},
) {
  const doorbell = handBell();
  const lookout = startLookout({
    db: kernel.db,
    doorbell,
    kinds: ["execution", "publication"],
    onError: fail,
    ...options,
  });
  kernel.after(() => lookout.stop());
  return { lookout, doorbell };
}

const makeDue = (kernel: Kernel, dueAt: (now: Instant) => Instant = (now) => now, queue = "default") =>
  transition(kernel.db, { role: "gateway", tenant: tenantA, name: "make" }, (tx) =>
    insertLease(tx, { kind: "execution", resource: uuidv7(), queue, dueAt: dueAt(tx.now) }),
  );

const patience = () => AbortSignal.timeout(20_000);

test("a look after a ring is put off where that is asked for, and one that is asked for at once is not", async (t) => {
  const kernel = await openKernel(t);
  const { lookout, doorbell } = watchful(kernel, { intervalMs: 60_000, afterRingMs: 200 });
  await until("the first look is over", () => lookout.lastAnsweredAt !== null);
  await makeDue(kernel);
  const rungAt = monotonicMs();
  doorbell.ring();
  lookout.soon();
  await lookout.wait("due:execution", patience());
  // A timer may be a millisecond early.
  assert.ok(monotonicMs() - rungAt >= 199);
  doorbell.ring();
  await lookout.now();
  const answeredAt = lookout.lastAnsweredAt ?? assert.fail("it has answered");
  // The look that was asked for has answered the ring, too.
  await delay(300);
  assert.equal(lookout.lastAnsweredAt, answeredAt);
});

test("idle cost: a whole process asks at most once a second when nothing happens", async (t) => {
  const kernel = await openKernel(t);
  const { settings, queries } = await openProxy(kernel, kernel.settings);
  const pools = openPools({ settings, name: "idle" });
  const doorbell = openDoorbell({ settings, name: "idle", onError: fail });
  const db = { ...kernel.db, pools, committed: () => doorbell.ring() };
  const holder = await registerIncarnation(db, {
    process: "idle",
    release: "test",
    schema: { minimum: 12, maximum: 12 },
  });
  const keeper = startLeaseKeeper({ settings, holder, onError: fail });
  const lookout = startLookout({
    db,
    doorbell,
    kinds: ["admission", "execution", "publication"],
    onError: fail,
  });
  const sequencer = startSequencer({ db, lookout, onError: fail });
  const reader = await startChangeReader({ db, lookout, onError: fail });
  kernel.after(async () => {
    await Promise.all([sequencer.stop(), reader.stop()]);
    await lookout.stop();
    await Promise.all([keeper.close(), doorbell.close()]);
    await pools.close();
  });
  await appendAlone({ db });
  await until("it is at work", () => reader.position() === 1n && keeper.lastRenewedAt !== null);
  await lookout.now();
  await lookout.now();

  const before = queries();
  // Time itself is what is measured here.
  await delay(10_000);
  const asked = queries() - before;
  assert.ok(asked <= 10, `${asked} queries in ten seconds`);
  assert.ok(asked >= 7, `${asked} queries in ten seconds: it has stopped looking`);
});

test("idle cost: what is asked again and again is planned once a connection", async (t) => {
  const kernel = await openKernel(t);
  const client = await kernel.db.pools.of("dispatcher").connect();
  try {
    for (let times = 0; times < 8; times += 1)
      await runOn(client, look, { kinds: ["admission", "execution", "work"] });
    const { rows } = await client.query(
      "select custom_plans::int, generic_plans::int from pg_prepared_statements where statement like '%recursive line%'",
    );
    assert.deepEqual(rows, [{ custom_plans: 0, generic_plans: 8 }]);
  } finally {
    client.release();
  }
});

test("W7: a due lease is found without any ring, within an interval", async (t) => {
  const kernel = await openKernel(t);
  const { lookout } = watchful(kernel, { intervalMs: 100 });
  const found = lookout.wait("due:execution", patience());
  await makeDue(kernel, undefined, "big");
  assert.deepEqual((await found).queues, ["big"]);
});

test("W7: a ring is answered at once, long before the interval", async (t) => {
  const kernel = await openKernel(t);
  const { lookout, doorbell } = watchful(kernel, { intervalMs: 3_600_000 });
  await lookout.now();
  const found = lookout.wait("due:execution", patience());
  await makeDue(kernel);
  doorbell.ring();
  await found;
});

test("a lease that becomes due later is found then, and not an interval afterwards", async (t) => {
  const kernel = await openKernel(t);
  const { lookout } = watchful(kernel, { intervalMs: 3_600_000 });
  const found = lookout.wait("due:execution", patience());
  await makeDue(kernel, (now) => instant(now + 300_000n));
  await lookout.now();
  await found;
});

test("what was found while a loop was busy is not missed, and nothing is found twice without a new look", async (t) => {
  const kernel = await openKernel(t);
  const { lookout } = watchful(kernel, { intervalMs: 3_600_000 });
  await makeDue(kernel);
  await lookout.now();
  const first = await lookout.wait("due:execution", patience(), { since: 0 });
  let again = false;
  const next = lookout.wait("due:execution", patience(), { since: first.serial }).then((found) => {
    again = true;
    return found;
  });
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(again, false);
  await lookout.now();
  assert.ok((await next).serial > first.serial);
});

test("unstamped changes and a moved position are topics of the same look", async (t) => {
  const kernel = await openKernel(t);
  const { lookout } = watchful(kernel, { intervalMs: 3_600_000 });
  await lookout.now();
  const [unstamped, moved] = [lookout.wait("unstamped", patience()), lookout.wait("position", patience())];
  await appendAlone(kernel);
  await lookout.now();
  await unstamped;
  await kernel.ask("update holdfast.resource_changes set position = 1");
  await kernel.ask("update holdfast.change_counter set position = 1");
  await lookout.now();
  assert.equal((await moved).position, 1n);
  assert.equal(lookout.position, 1n);
});

/** Rings all the time, and gives how many looks were made meanwhile, each taking a while longer than it would. */
async function ringing(t: Parameters<typeof openKernel>[0], forMs: number, slowMs = 0) {
  const kernel = await openKernel(t);
  let [running, most, looks] = [0, 0, 0];
  const pool = kernel.db.pools.of("dispatcher");
  const query = pool.query.bind(pool) as (config: unknown) => Promise<unknown>;
  Object.assign(pool, {
    async query(config: unknown) {
      running += 1;
      looks += 1;
      most = Math.max(most, running);
      if (slowMs > 0) await delay(slowMs);
      return query(config).finally(() => {
        running -= 1;
      });
    },
  });
  const { lookout, doorbell } = watchful(kernel);
  await lookout.now();
  const [before, started] = [looks, performance.now()];
  while (performance.now() - started < forMs) {
    for (let ring = 0; ring < 10; ring += 1) doorbell.ring();
    await new Promise((resolve) => setImmediate(resolve));
  }
  return { most, looks: looks - before, elapsed: performance.now() - started };
}

test("however often it rings, no two looks run at a time and about 200 a second", async (t) => {
  const { most, looks, elapsed } = await ringing(t, 500);
  assert.equal(most, 1);
  assert.ok(looks <= elapsed / 5 + 2, `${looks} looks in ${elapsed} ms`);
});

test("idle cost: looks that take long are made for a fifth of the time at most", async (t) => {
  const { looks, elapsed } = await ringing(t, 1_000, 40);
  assert.ok(looks >= 1 && looks <= elapsed / 200 + 2, `${looks} looks of 40 ms in ${elapsed} ms`);
});

test("when the database fails it reports, backs off, and goes on when the database is back", async (t) => {
  const kernel = await openKernel(t);
  let failures = 0;
  const { lookout } = watchful(kernel, {
    intervalMs: 20,
    onError: () => {
      failures += 1;
    },
  });
  await lookout.now();
  const answered = lookout.lastAnsweredAt;
  assert.ok(answered !== null);
  await kernel.ask("alter table holdfast.change_counter rename to gone");
  await until("failures are reported", () => failures >= 2);
  await kernel.ask("alter table holdfast.gone rename to change_counter");
  await until("it goes on", () => (lookout.lastAnsweredAt ?? 0) > answered);
});

test("waiting ends with its signal, and with the lookout", async (t) => {
  const kernel = await openKernel(t);
  const { lookout } = watchful(kernel);
  const controller = new AbortController();
  const aborted = assert.rejects(lookout.wait("due:execution", controller.signal), /enough/);
  controller.abort(new Error("enough"));
  await aborted;
  const stopped = assert.rejects(lookout.wait("due:execution", patience()), /the lookout has stopped/);
  await lookout.stop();
  await stopped;
});

test("W7: a look touches a few pages, with 100,000 later leases of 500 tenants and 20,000 changes", async (t) => {
  const kernel = await openKernel(t);
  await kernel.ask(
    `insert into holdfast.leases (tenant_id, kind, resource_id, queue, due_at, wake_at)
     select 't' || n % 500, 'execution', gen_random_uuid(), 'q' || n % 3, at, at
     from (select n, now() + interval '1 day' as at from generate_series(1, 100000) n) later`,
  );
  await kernel.ask(
    `insert into holdfast.resource_changes (tenant_id, position, kind, resource_id, root_id, resource_version, operation, body)
     select 't', n, 'job', id, id, 1, 'created', '{}' from (select n, gen_random_uuid() as id from generate_series(1, 20000) n) made`,
  );
  await kernel.ask("vacuum analyze holdfast.leases_execution, holdfast.resource_changes");
  await withClient(kernel.settings, async (client) => {
    await client.query("set role holdfast_dispatcher");
    await client.query(`prepare look(text[]) as ${look.text}`);
    for (const mode of ["force_custom_plan", "force_generic_plan"]) {
      await client.query(`set plan_cache_mode = ${mode}`);
      const explain = "explain (analyze, buffers, format json) execute look('{execution,publication}')";
      await client.query(explain);
      const { rows } = await client.query<{ "QUERY PLAN": [{ Plan: Record<string, number> }] }>(explain);
      const [{ Plan: plan }] = rows[0]?.["QUERY PLAN"] ?? assert.fail("no plan");
      const pages = (plan["Shared Hit Blocks"] ?? 0) + (plan["Shared Read Blocks"] ?? 0);
      assert.ok(pages < 60, `${mode}: ${pages} pages`);
    }
  });
});
