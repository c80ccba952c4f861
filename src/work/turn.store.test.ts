import assert from "node:assert/strict";
import { test } from "node:test";
import { bench, failed, leaseUs, succeeded } from "../../test/support/work-hands.ts";
import { isHoldfastError } from "../core/errors.ts";
import { instant, microseconds, seconds } from "../core/time.ts";
import { deadlineOnly, legacy, planned } from "./policy.ts";
import { observeWork, recoverWork, turnWork } from "./turn.store.ts";
import { inspectWork } from "./work.store.ts";

const us = microseconds;
const plan = { version: "p", offsets: [us(0n), us(10n), us(25n)], circuit: us(30n) };

test("W10: planned attempts are eligible at their slots, to the microsecond, and the last failure ends it", async (t) => {
  const { clock, give, hands, state, work, tenant } = await bench(t, { policy: planned(plan) });
  const accepted = clock.now();
  const id = await give();
  const worker = hands();
  for (const [used, offset] of [0n, 10n, 25n].entries()) {
    if (used > 0) {
      await clock.set(instant(accepted + offset - 1n));
      assert.equal((await worker.claim()).claimed.length, 0, "a microsecond early");
    }
    await clock.set(instant(accepted + offset));
    const item = await worker.permit();
    assert.equal(item.attempt, used + 1);
    await worker.done(item, failed);
  }
  assert.equal(await state(id), "failed");
  const { item, plan: came } = await inspectWork(work.db, tenant, id);
  assert.equal(item.execution_admission_closed_reason, "slots_exhausted");
  assert.equal(item.execution_admission_closed_at, accepted + 25n);
  assert.deepEqual(
    came.map(({ came }) => came),
    ["failed", "failed", "failed"],
  );
});

test("W10: overdue slots may follow each other at once, and none is used by a refusal", async (t) => {
  const { clock, give, hands, state } = await bench(t, { policy: planned(plan) });
  const id = await give();
  const worker = hands();
  await clock.advance(26n);
  for (const attempt of [1, 2]) {
    const item = await worker.permit();
    assert.equal(item.attempt, attempt);
    await worker.done(item, failed);
  }
  const { claimed } = await worker.claim();
  await clock.advance(4n);
  const { passed } = await worker.ask(...claimed);
  assert.deepEqual(
    passed.map(({ what }) => what),
    ["closed"],
  );
  assert.equal(await state(id), "failed");
});

test("W4: the first closure and the first look after the deadline are kept apart, in either order", async (t) => {
  for (const deadlineFirst of [true, false]) {
    const { clock, give, hands, work, tenant } = await bench(t, { policy: planned(plan) });
    const accepted = clock.now();
    const deadline = instant(accepted + (deadlineFirst ? 28n : 1000n));
    const id = await give({ deadline });
    const worker = hands();
    const item = await worker.permit();
    await clock.set(instant(accepted + 30n));
    if (deadlineFirst) {
      const { unmatched } = await worker.done(item, succeeded());
      assert.equal(unmatched.length, 1, "the lease ended with the deadline");
    } else await worker.done(item, failed);
    await clock.set(instant(accepted + 2_000_000_000n));
    const { lost } = await hands().claim();
    await recoverWork(work.db, lost);
    const facts = (await inspectWork(work.db, tenant, id)).item;
    if (deadlineFirst) {
      assert.equal(facts.execution_admission_closed_reason, "deadline_elapsed");
      assert.ok((facts.execution_deadline_reached_at ?? 0n) >= deadline);
    } else {
      assert.equal(facts.execution_admission_closed_reason, "circuit_elapsed");
      assert.equal(facts.execution_admission_closed_at, accepted + 30n);
    }
  }
});

test("W10: an admitted attempt succeeds after the circuit window, and not at its deadline", async (t) => {
  const { clock, give, hands, state } = await bench(t, { policy: planned(plan) });
  const accepted = clock.now();
  const [late, later] = [await give(), await give({ deadline: instant(accepted + 1000n) })];
  const worker = hands();
  const [first, second] = [await worker.permit(), await worker.permit()];
  await clock.set(instant(accepted + 999n));
  await worker.done(first, succeeded());
  await clock.set(instant(accepted + 1000n));
  const { unmatched } = await worker.done(second, succeeded());
  assert.equal(unmatched.length, 1);
  assert.deepEqual([await state(late), await state(later)], ["succeeded", "permitted"]);
});

test("W6: a late success is quarantined with its retention policy, and is never a success", async (t) => {
  const { clock, give, hands, state, lose, work, tenant, ask } = await bench(t, { policy: deadlineOnly() });
  const id = await give({ deadline: instant(clock.now() + seconds(100)) });
  const zombie = hands();
  const item = await zombie.permit();
  assert.equal(await lose(), "retry");
  const { unmatched } = await zombie.done(item, succeeded({ paid: true }));
  const [one] = unmatched;
  assert.ok(one);
  assert.equal(await observeWork(work.db, zombie.holder, one, "thirty-days"), "quarantined");
  assert.equal(await observeWork(work.db, zombie.holder, one, "thirty-days"), "quarantined", "once");
  const { observations } = await inspectWork(work.db, tenant, id);
  assert.deepEqual(
    observations.map(({ outcome, reason, retention_policy }) => [outcome, reason, retention_policy]),
    [["succeeded", "expired", "thirty-days"]],
  );
  assert.equal(await state(id), "retry_wait");
  assert.deepEqual(await ask("select from holdfast.work_history"), []);
});

test("W5: a permit is used once, and taking an item over never erases an open one", async (t) => {
  const { give, hands, clock, work, tenant } = await bench(t, { policy: legacy() });
  const id = await give();
  const worker = hands();
  const { claimed } = await worker.claim();
  assert.equal((await worker.ask(...claimed)).permitted.length, 1);
  assert.deepEqual(
    (await worker.ask(...claimed)).passed.map(({ what }) => what),
    ["refused"],
  );
  await clock.advance(leaseUs);
  const taker = hands();
  const claims = await taker.claim();
  assert.deepEqual([claims.claimed.length, claims.lost.length], [0, 1], "it is recovered, not claimed");
  assert.equal((await inspectWork(work.db, tenant, id)).item.state, "permitted");
  await recoverWork(work.db, claims.lost);
  const { attempts } = await inspectWork(work.db, tenant, id);
  assert.deepEqual(
    attempts.map(({ attempt, outcome, holder }) => [attempt, outcome, holder]),
    [[1, "unknown", worker.holder]],
  );
});

test("W5: a claim without a permit used nothing, whoever takes it over", async (t) => {
  const { give, hands, clock } = await bench(t, { policy: legacy({ attempts: 1 }) });
  await give();
  const dead = hands();
  await dead.claim();
  await clock.advance(leaseUs);
  assert.equal((await hands().permit()).attempt, 1);
});

test("W5: an answer that was lost is read back: what was settled is not settled again", async (t) => {
  const { give, hands, work, state } = await bench(t, { policy: legacy() });
  const id = await give();
  const worker = hands();
  const item = await worker.permit();
  await worker.done(item, succeeded());
  const { unmatched } = await worker.done(item, succeeded());
  const [one] = unmatched;
  assert.ok(one);
  assert.equal(await observeWork(work.db, worker.holder, one, null), "settled");
  assert.equal(await state(id), "succeeded");
});

test("W1: a legacy retry is counted from the decision", async (t) => {
  const { give, hands, clock } = await bench(t, {
    policy: legacy({ initial: us(100n), longest: us(300n), attempts: 4 }),
  });
  await give();
  const worker = hands();
  for (const pause of [100n, 200n, 300n]) {
    const item = await worker.permit();
    await clock.advance(7n);
    await worker.done(item, failed);
    await clock.advance(pause - 1n);
    assert.equal((await worker.claim()).claimed.length, 0);
    await clock.advance(1n);
  }
  const last = await worker.permit();
  assert.equal(last.attempt, 4);
  const { settled } = await worker.done(last, failed);
  assert.deepEqual(
    settled.map(({ what }) => what),
    ["failed"],
  );
});

test("W10: a renewal goes no further than the longest lease life and the deadline", async (t) => {
  const { give, hands, clock, ask } = await bench(t, { policy: deadlineOnly({ lease: seconds(20) }) });
  const accepted = clock.now();
  await give({ deadline: instant(accepted + seconds(5)) });
  await give({ deadline: instant(accepted + seconds(500)) });
  const worker = hands();
  await worker.permit();
  await worker.permit();
  const rows = await ask<{ left: number }>(
    "select extract(epoch from least(wake_at, renew_until) - (select at from controlled.clock))::int as left from holdfast.leases order by 1",
  );
  assert.deepEqual(
    rows.map(({ left }) => left),
    [5, 20],
  );
});

test("W5: one item that the database refuses does not keep the others of its turn", async (t) => {
  const { give, hands, work, state } = await bench(t, { policy: legacy() });
  const ids = [await give(), await give()];
  const worker = hands();
  const items = [await worker.permit(), await worker.permit()];
  const poisoned = items.map((item, n) => ({ item, outcome: succeeded(n === 0 ? "\u0000" : "fine") }));
  await assert.rejects(turnWork(work.db, worker.holder, poisoned, []));
  assert.deepEqual(await Promise.all(ids.map(state)), ["permitted", "permitted"], "nothing of it happened");
  await turnWork(work.db, worker.holder, poisoned.slice(1), []);
  assert.deepEqual(await Promise.all(ids.map(state)), ["permitted", "succeeded"]);
});

test("W10: an open circuit defers items without using an attempt, and lets one through to see", async (t) => {
  const breaker = { failures: 2, probe: seconds(10) };
  const { give, hands, clock, ask } = await bench(t, { policy: legacy({ initial: us(0n) }), breaker });
  for (let n = 0; n < 3; n += 1) await give({ circuitKey: "bank" });
  const worker = hands();
  for (const item of [await worker.permit(), await worker.permit()]) await worker.done(item, failed);
  const { claimed } = await worker.claim();
  assert.equal(claimed.length, 3);
  assert.deepEqual(
    (await worker.ask(...claimed)).passed.map(({ what }) => what),
    ["deferred", "deferred", "deferred"],
  );
  assert.deepEqual(await ask("select sum(attempt)::int as used from holdfast.leases_work"), [{ used: 2 }]);
  await clock.advance(seconds(10));
  const again = await worker.claim();
  const probe = await worker.ask(...again.claimed);
  assert.deepEqual([probe.permitted.length, probe.passed.length], [1, 2], "half open");
  const [one] = probe.permitted;
  assert.ok(one);
  await worker.done(one, succeeded());
  await clock.advance(leaseUs);
  const rest = await worker.claim();
  assert.equal((await worker.ask(...rest.claimed)).permitted.length, 2, "closed again");
});

test("W5: unstarted permits are given back durably, and their attempt with them", async (t) => {
  const { give, hands, work, tenant } = await bench(t, { policy: planned(plan) });
  const id = await give();
  const worker = hands();
  const item = await worker.permit();
  await worker.done(item, { type: "returned" });
  const facts = await inspectWork(work.db, tenant, id);
  assert.deepEqual(
    [facts.item.state, facts.item.attempts, facts.attempts[0]?.outcome],
    ["pending", 0, "returned"],
  );
  assert.equal((await hands().permit()).attempt, 1);
});

test("W10: a process of another deployment is refused", async (t) => {
  const { hands, work, give } = await bench(t, { policy: legacy() });
  await give();
  const { claimed } = await hands().claim();
  const stale = { ...work.db, deploymentEpoch: 2n };
  await assert.rejects(turnWork(stale, hands().holder, [], claimed), (error) =>
    isHoldfastError(error, "deployment_fenced"),
  );
});

test("W12: an inspection shows every stored fact and each planned attempt against what happened, and no payload", async (t) => {
  const { give, hands, clock, work, tenant } = await bench(t, { policy: planned(plan) });
  const secret = "a-payload-that-nobody-logs";
  const deadline = instant(clock.now() + seconds(60));
  const id = await give({ input: { secret }, key: "k", deadline });
  const worker = hands();
  await worker.done(await worker.permit(), failed);
  const inspection = await inspectWork(work.db, tenant, id);
  assert.deepEqual(
    inspection.plan.map(({ attempt, eligibleAt, came }) => [
      attempt,
      eligibleAt - inspection.item.accepted_at,
      came,
    ]),
    [
      [1, 0n, "failed"],
      [2, 10n, "not_used"],
      [3, 25n, "not_used"],
    ],
  );
  assert.deepEqual(
    [inspection.item.execution_not_after, inspection.item.cutoff],
    [deadline, inspection.item.accepted_at + 30n],
  );
  const text = JSON.stringify(inspection, (_, value: unknown) =>
    typeof value === "bigint" ? String(value) : value,
  );
  assert.ok(!text.includes(secret));
});
