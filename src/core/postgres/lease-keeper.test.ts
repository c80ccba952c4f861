import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { test } from "node:test";
import { withClient } from "../../../test/support/database.ts";
import { type Kernel, openKernel, tenantA } from "../../../test/support/kernel.ts";
import { openProxy } from "../../../test/support/proxy.ts";
import { until } from "../../../test/support/until.ts";
import { isHoldfastError } from "../errors.ts";
import { brandId, type IncarnationId, uuidv7 } from "../ids.ts";
import { liveIncarnations, registerIncarnation } from "../incarnation.store.ts";
import { claimLeases, insertLease } from "../lease.store.ts";
import type { HeldLease } from "../lease.ts";
import { seconds } from "../time.ts";
import { startLeaseKeeper, type TimedLease } from "./lease-keeper.ts";
import { transition } from "./transition.ts";

const leaseUs = seconds(1);
const renewMs = 250;

async function makeDue(kernel: Kernel, count = 1): Promise<void> {
  await transition(kernel.db, { role: "gateway", tenant: tenantA, name: "make" }, async (tx) => {
    for (let made = 0; made < count; made += 1) {
      await insertLease(tx, { kind: "execution", resource: uuidv7(), dueAt: tx.now });
    }
  });
}

const claim = (kernel: Kernel, holder = brandId<IncarnationId>(uuidv7()), lease = leaseUs) =>
  claimLeases(kernel.db, { kind: "execution", holder, limit: 10, quota: 10, leaseUs: lease });

async function keeping(
  kernel: Kernel,
  options: { stallMs?: number; settings?: Kernel["settings"]; leases?: number; lease?: typeof leaseUs } = {},
) {
  const { stallMs = 20_000, settings = kernel.settings, leases = 1, lease = leaseUs } = options;
  const schema = { minimum: 12, maximum: 12 };
  const holder = await registerIncarnation(kernel.db, { process: "test", release: "test", schema });
  const errors: Error[] = [];
  const lost: TimedLease[] = [];
  const keeper = startLeaseKeeper({
    settings,
    holder,
    leaseUs: lease,
    renewMs,
    stallMs,
    onError: (error) => errors.push(error),
    onLost: (gone) => lost.push(gone),
  });
  kernel.after(() => keeper.close());
  await until("the keeper is at work", () => keeper.lastRenewedAt !== null);
  await makeDue(kernel, leases);
  const kept = (await claim(kernel, holder, lease)).map((held) => keeper.hold(held));
  assert.equal(kept.length, leases);
  const [first] = kept;
  assert.ok(first);
  return { keeper, holder, kept, first, errors, lost };
}

/** Nothing of this thread's runs meanwhile: no timer, no message. */
const blockEventLoop = (ms: number) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

const stored = async (kernel: Kernel, lease: HeldLease) => {
  const [row] = await kernel.ask<{ holder: string; epoch: string; current: boolean; wake_at: Date }>(
    "select holder, epoch, wake_at > clock_timestamp() as current, wake_at from holdfast.leases where resource_id = $1",
    [lease.resource],
  );
  assert.ok(row);
  return row;
};

/** Until so many more rounds have been answered. */
async function rounds(keeper: { readonly lastRenewedAt: number | null }, count: number): Promise<void> {
  for (let round = 0; round < count; round += 1) {
    const last = keeper.lastRenewedAt;
    await until("a round", () => keeper.lastRenewedAt !== last);
  }
}

test("G5: leases are renewed for as long as they are held, and the same rounds show the process alive", async (t) => {
  const kernel = await openKernel(t);
  const { keeper, kept, holder, lost } = await keeping(kernel, { leases: 3 });
  const seen = async () =>
    (await liveIncarnations(kernel.db, seconds(60))).find(({ id }) => id === holder)?.seenAt;
  const before = await seen();
  // Longer than the lease.
  await rounds(keeper, 6);
  for (const lease of kept) {
    assert.equal((await stored(kernel, lease)).current, true);
    assert.equal(lease.signal.aborted, false);
  }
  assert.deepEqual(await claim(kernel), []);
  assert.deepEqual(lost, []);
  const after = await seen();
  assert.ok(before !== undefined && after !== undefined && after > before);
});

test("G5: an event loop that is blocked for longer than the lease loses nothing", async (t) => {
  const kernel = await openKernel(t);
  const { first, lost } = await keeping(kernel);
  blockEventLoop(2_500);
  await new Promise((resolve) => setTimeout(resolve, 0));
  assert.equal(first.signal.aborted, false);
  assert.deepEqual(await claim(kernel), []);
  assert.equal((await stored(kernel, first)).current, true);
  assert.deepEqual(lost, []);
});

test("G5: what was taken just before the event loop was blocked is renewed as well, and what is over by then is not", async (t) => {
  const kernel = await openKernel(t);
  // With so much time the thread hears of it later than when it was taken.
  const { keeper, kept, first, holder, lost } = await keeping(kernel, {
    leases: 2,
    lease: seconds(3),
    stallMs: 1_500,
  });
  blockEventLoop(1_200);
  const over = kept[1];
  assert.ok(over);
  keeper.drop(over);
  await rounds(keeper, 2);
  const renewed = await stored(kernel, first);
  assert.equal(renewed.holder, holder);
  assert.ok(renewed.wake_at.getTime() > Number(first.expiresAt / 1_000n));
  assert.equal((await stored(kernel, over)).wake_at.getTime(), Number(over.expiresAt / 1_000n));
  assert.deepEqual(lost, []);
});

test("G5: a process that hangs for longer than its stall limit loses its leases, and is told", async (t) => {
  const kernel = await openKernel(t);
  const { keeper, first, lost } = await keeping(kernel, { stallMs: 400 });
  blockEventLoop(2_500);
  const [taken] = await claim(kernel);
  assert.equal(taken?.resource, first.resource);
  await until("the signal aborts", () => first.signal.aborted);
  assert.ok(isHoldfastError(first.signal.reason, "fenced"));
  assert.deepEqual(
    lost.map((lease) => lease.resource),
    [first.resource],
  );
  // It is alive again, and renews what it takes from now on.
  await rounds(keeper, 1);
});

test("G5: a process stopped with SIGSTOP past its lease and resumed is told, and renews nothing that is another's", async (t) => {
  const kernel = await openKernel(t);
  await makeDue(kernel);
  const file = join(import.meta.dirname, "../../../test/support/keeper-child.ts");
  const child = fork(file, [JSON.stringify(kernel.settings)], { execArgv: [] });
  kernel.after(() => child.kill("SIGKILL"));
  const said: unknown[] = [];
  child.on("message", (message) => said.push(message));
  await until("it holds the lease", () => said.includes("held"));
  child.kill("SIGSTOP");
  const [taken] = await until("the lease can be taken", async () => {
    const leases = await claim(kernel, undefined, seconds(60));
    return leases.length > 0 ? leases : undefined;
  });
  assert.ok(taken);
  child.kill("SIGCONT");
  await until("it is told", () => said.includes("fenced"));
  const row = await stored(kernel, taken);
  assert.deepEqual([row.holder, BigInt(row.epoch), row.current], [taken.holder, taken.epoch, true]);
  child.disconnect();
  await once(child, "exit");
});

test("E6: an expired lease is not renewed, though nobody has taken it, and its signal aborts at the next round", async (t) => {
  const kernel = await openKernel(t);
  const { first } = await keeping(kernel, { lease: seconds(3_600) });
  await kernel.ask("update holdfast.leases set wake_at = clock_timestamp()");
  const expired = await stored(kernel, first);
  await until("the signal aborts", () => first.signal.aborted);
  assert.ok(isHoldfastError(first.signal.reason, "fenced"));
  assert.deepEqual(await stored(kernel, first), expired);
});

test("G5: without a database the signals abort when the lease's time has passed on the monotonic clock", async (t) => {
  const kernel = await openKernel(t);
  const proxy = await openProxy(kernel, kernel.settings);
  const { keeper, first, errors } = await keeping(kernel, { settings: proxy.settings });
  proxy.refuse(true);
  proxy.freeze();
  await until("the signal aborts", () => first.signal.aborted);
  assert.ok(isHoldfastError(first.signal.reason, "fenced"));
  assert.ok(errors.length > 0);
  proxy.refuse(false);
  await rounds(keeper, 1);
});

for (const [how, breakIt] of [
  [
    "is terminated",
    (kernel: Kernel) =>
      kernel.ask(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name like '%/keeper'",
      ),
  ],
  ["hangs half open", (_kernel: Kernel, proxy: { readonly freeze: () => void }) => proxy.freeze()],
] as const) {
  test(`G5: when the keeper's connection ${how}, it makes a new one in time`, async (t) => {
    const kernel = await openKernel(t);
    const proxy = await openProxy(kernel, kernel.settings);
    const { keeper, first, lost } = await keeping(kernel, { settings: proxy.settings, lease: seconds(5) });
    await breakIt(kernel, proxy);
    await rounds(keeper, 3);
    assert.equal(first.signal.aborted, false);
    assert.deepEqual(lost, []);
    assert.equal((await stored(kernel, first)).current, true);
  });
}

test("G5: a lease whose row a long transaction has locked delays the renewal of no other, and is renewed afterwards", async (t) => {
  const kernel = await openKernel(t);
  const { keeper, kept, first, lost } = await keeping(kernel, { leases: 2, lease: seconds(5) });
  const [, second] = kept;
  assert.ok(second);
  await withClient(kernel.database.superuser, async (other) => {
    await other.query("begin");
    await other.query("select from holdfast.leases where resource_id = $1 for update", [first.resource]);
    const [before, beforeSecond] = [await stored(kernel, first), await stored(kernel, second)];
    await rounds(keeper, 3);
    assert.deepEqual(await stored(kernel, first), before);
    assert.ok((await stored(kernel, second)).wake_at > beforeSecond.wake_at);
    await other.query("commit");
    await until("it is renewed", async () => (await stored(kernel, first)).wake_at > before.wake_at);
  });
  assert.deepEqual(lost, []);
});

test("a dropped lease is no longer renewed, and its signal stays quiet", async (t) => {
  const kernel = await openKernel(t);
  const { keeper, first } = await keeping(kernel);
  keeper.drop(first);
  await until("it expires", async () => !(await stored(kernel, first)).current);
  assert.equal(first.signal.aborted, false);
});

test("a lease that comes late in its life is renewed at once", async (t) => {
  const kernel = await openKernel(t);
  const { keeper, holder, lost } = await keeping(kernel, { lease: seconds(3_600) });
  await makeDue(kernel);
  const [late] = await claim(kernel, holder, seconds(1));
  assert.ok(late);
  keeper.hold(late);
  await rounds(keeper, 1);
  await until(
    "it is renewed",
    async () => (await stored(kernel, late)).wake_at.getTime() > Date.now() + 60_000,
  );
  assert.deepEqual(lost, []);
});

test("closing ends the incarnation and the connection, and may be done twice", async (t) => {
  const kernel = await openKernel(t);
  const { keeper, holder } = await keeping(kernel);
  await keeper.close();
  await keeper.close();
  const [row] = await kernel.ask<{ ended_at: Date | null }>(
    "select ended_at from holdfast.incarnations where incarnation_id = $1",
    [holder],
  );
  assert.ok(row?.ended_at);
  await until("the connection is gone", async () => {
    const open = await kernel.ask(
      "select from pg_stat_activity where datname = current_database() and application_name like '%/keeper'",
    );
    return open.length === 0;
  });
});
