import assert from "node:assert/strict";
import { test } from "node:test";
import { type Bench, bench, failed, leaseUs, succeeded } from "../../test/support/work-hands.ts";
import { isHoldfastError } from "../core/errors.ts";
import { seconds } from "../core/time.ts";
import { legacy, planned } from "./policy.ts";
import { reconcileOne } from "./reconcile.ts";
import { afterClosure, afterLoss, effectSafeties } from "./safety.ts";
import { recoverWork } from "./turn.store.ts";
import {
  cancelWork,
  disableTenant,
  inspectWork,
  listSuspended,
  resolveWork,
  resumeWork,
  suspendWork,
} from "./work.store.ts";

const plan = { version: "p", offsets: [0, 100, 200].map(seconds), circuit: seconds(300) };

/** What each answer of the tables is in the store. */
const stored = {
  next_attempt: "retry_wait",
  reconcile: "reconciling",
  suspend: "suspended",
  succeed: "succeeded",
  fail: "failed",
} as const;

const by = "ops";

async function lost(one: Bench): Promise<string> {
  const id = await one.give();
  await one.hands().permit();
  await one.lose();
  return id;
}

for (const safety of effectSafeties) {
  test(`W11: ${safety}: what follows a lost worker is what its table says, before the cutoff and after`, async (t) => {
    const one = await bench(t, { policy: planned(plan), safety });
    const { work, tenant, clock, state } = one;
    const id = await lost(one);
    assert.equal(await state(id), stored[afterLoss[safety].unknown]);
    // Only what is out of its line is proven: the others go on by themselves.
    if (afterLoss[safety].unknown === "next_attempt") return;
    const ids = [id, await lost(one)];
    for (const [place, verdict] of (["applied", "not_applied"] as const).entries()) {
      const work1 = ids[place] ?? "";
      await resolveWork(work.db, { tenant, work: work1, by, verdict, result: 1 });
      assert.equal(await state(work1), stored[afterLoss[safety][verdict]]);
    }
    const late = [await lost(one), await lost(one)];
    await clock.advance(seconds(1000));
    for (const [place, verdict] of (["applied", "not_applied"] as const).entries()) {
      const work1 = late[place] ?? "";
      assert.equal(await state(work1), stored[afterClosure[safety].unknown]);
      await resolveWork(work.db, { tenant, work: work1, by, verdict });
      assert.equal(await state(work1), stored[afterClosure[safety][verdict]]);
    }
  });
}

for (const safety of ["idempotent", "provider_keyed"] as const) {
  test(`W11: ${safety}: an unknown outcome whose admission has closed is suspended, not failed`, async (t) => {
    const one = await bench(t, { policy: planned(plan), safety });
    const id = await one.give();
    const keys = new Set<string | null>();
    const worker = one.hands();
    keys.add((await worker.permit()).providerKey);
    await one.lose();
    await one.clock.advance(seconds(70));
    const second = await worker.permit();
    keys.add(second.providerKey);
    assert.deepEqual(keys.size, 1, "the same key with each attempt");
    await worker.done(second, failed);
    await one.clock.advance(seconds(500));
    const { claimed } = await worker.claim();
    assert.deepEqual(
      (await worker.ask(...claimed)).passed.map(({ what }) => what),
      ["suspended"],
    );
    const { item, suspensions } = await inspectWork(one.work.db, one.tenant, id);
    assert.deepEqual([item.state, suspensions[0]?.reason], ["suspended", "outcome_unknown"]);
    await resolveWork(one.work.db, { tenant: one.tenant, work: id, by, verdict: "not_applied" });
    assert.equal(await one.state(id), "failed");
  });
}

test("W11: manual_resolution goes on only by an operator's command, once nothing is unknown", async (t) => {
  const one = await bench(t, { policy: planned(plan), safety: "manual_resolution" });
  const { work, tenant } = one;
  const id = await lost(one);
  const ask = { tenant, work: id, by };
  await assert.rejects(resumeWork(work.db, { ...ask, how: "requeued" }), (error) =>
    isHoldfastError(error, "conflict"),
  );
  await resolveWork(work.db, { ...ask, verdict: "not_applied", note: "looked at the bank" });
  assert.equal((await listSuspended(work.db, tenant, 10)).length, 1);
  assert.equal(await resumeWork(work.db, { ...ask, how: "released" }), "retry_wait");
  assert.equal((await listSuspended(work.db, tenant, 10)).length, 0);
  await one.clock.advance(seconds(100));
  assert.equal((await one.hands().permit()).attempt, 2);
});

test("W10: nothing is put back in its line past its cutoff", async (t) => {
  const one = await bench(t, { policy: planned(plan) });
  const id = await one.give();
  const ask = { tenant: one.tenant, work: id, by };
  await suspendWork(one.work.db, ask);
  await one.clock.advance(seconds(300));
  for (const how of ["released", "requeued"] as const) {
    await assert.rejects(resumeWork(one.work.db, { ...ask, how }), (error) =>
      isHoldfastError(error, "admission_closed"),
    );
  }
});

test("W11: a version's reconciler decides, under the lease of its item alone", async (t) => {
  const one = await bench(t, { policy: legacy(), safety: "reconcile_before_retry" });
  const { work, clock } = one;
  const id = await lost(one);
  const asked = async (verdict: unknown) => {
    const worker = one.hands();
    const { toReconcile } = await worker.claim();
    const [item] = toReconcile;
    assert.ok(item, "it is due for its reconciler");
    const decided = { ...one.work1, reconcile: () => Promise.resolve(verdict as "unknown") };
    const signal = new AbortController().signal;
    return {
      item,
      again: () => reconcileOne({ db: work.db, holder: worker.holder, work: decided, item, signal }),
    };
  };
  const unsure = await asked("unknown");
  assert.equal(await unsure.again(), "reconciling");
  assert.equal((await one.hands().claim()).toReconcile.length, 0, "later");
  await clock.advance(seconds(30));
  const stale = await asked({ applied: true });
  await clock.advance(leaseUs);
  const fresh = await asked({ applied: true, result: { paid: 1 } });
  assert.equal(await stale.again(), "lost");
  assert.equal(await fresh.again(), "succeeded");
  assert.equal(await one.state(id), "succeeded");
});

test("W11: what a reconciler proves is settled also where its result can't be stored, and what is no verdict proves nothing", async (t) => {
  const one = await bench(t, { policy: legacy(), safety: "reconcile_before_retry" });
  const answered = async (verdict: unknown) => {
    const id = await lost(one);
    const worker = one.hands();
    const [item] = (await worker.claim()).toReconcile;
    assert.ok(item, "it is due for its reconciler");
    const work = { ...one.work1, reconcile: () => Promise.resolve(verdict as "unknown") };
    const { signal } = new AbortController();
    const asked = reconcileOne({ db: one.work.db, holder: worker.holder, work, item, signal });
    await assert.rejects(asked, "it is told");
    return one.state(id);
  };
  assert.equal(await answered({ applied: true, result: { paid: 5n } }), "succeeded");
  assert.equal(
    await answered({ applied: true, result: Array.from({ length: 60_000 }, () => 1) }),
    "succeeded",
  );
  assert.equal(await answered(true), "reconciling");
});

test("W11: cancellation ends what has not begun, and what runs may still succeed and says so", async (t) => {
  const one = await bench(t, { policy: legacy(), safety: "manual_resolution" });
  const { work, tenant, state } = one;
  const cancel = (id: string) => cancelWork(work.db, { tenant, work: id, by, reason: "not wanted" });
  const waiting = await one.give();
  assert.equal(await cancel(waiting), "cancelled_before_effect");
  assert.equal(await cancel(waiting), "cancelled_before_effect", "again");
  const claimed = await one.give();
  const worker = one.hands();
  const claims = await worker.claim();
  assert.equal(await cancel(claimed), "cancelled_before_effect");
  assert.deepEqual(
    (await worker.ask(...claims.claimed)).passed.map(({ what }) => what),
    ["refused"],
  );
  const running = await one.give();
  const item = await worker.permit();
  assert.equal(await cancel(running), "cancel_pending");
  await worker.done(item, succeeded());
  assert.equal(await state(running), "succeeded_after_cancel_requested");
  const gone = await one.give();
  await worker.permit();
  await cancel(gone);
  await one.lose();
  assert.equal(await state(gone), "suspended", "nobody knows");
  await resolveWork(work.db, { tenant, work: gone, by, verdict: "not_applied" });
  assert.equal(await state(gone), "cancelled_before_effect");
  await assert.rejects(cancel("00000000-0000-7000-8000-000000000000"), (error) =>
    isHoldfastError(error, "not_found"),
  );
});

test("W11: a disabled tenant's 10,000 waiting items are suspended at once, for good, within 30 seconds", async (t) => {
  const one = await bench(t, { policy: legacy() });
  const { work, tenant, ask, hands } = one;
  const id = await one.give();
  await ask(
    `insert into holdfast.work_items select w.tenant_id, gen_random_uuid(), w.version_number, null, w.fingerprint_schema, w.fingerprint, w.input,
       w.provider_key, w.circuit_key, w.queue, w.priority, w.accepted_at, w.due_at, w.attempts_max, w.retry_initial_microseconds,
       w.retry_longest_microseconds, w.elapsed_max_microseconds, w.lease_max_microseconds from holdfast.work_items w, generate_series(1, 9999)`,
  );
  await ask(
    `insert into holdfast.leases (tenant_id, kind, resource_id, queue, due_at, wake_at, work_state, attempt)
     select w.tenant_id, 'work', w.work_id, l.queue, l.due_at, l.wake_at, 'pending', 0 from holdfast.work_items w, holdfast.leases l where w.work_id <> l.resource_id`,
  );
  const running = await hands().permit();
  const worker = hands();
  const { claimed } = await worker.claim(5);
  const startedMs = performance.now();
  assert.equal(await disableTenant(work.db, tenant), 9_999n);
  assert.ok(performance.now() - startedMs < 30_000);
  assert.deepEqual(
    (await worker.ask(...claimed)).passed.map(({ what }) => what),
    ["refused", "refused", "refused", "refused", "refused"],
  );
  assert.equal(await one.state(running.id), "permitted", "what runs goes on to its end");
  await assert.rejects(one.give(), (error) => isHoldfastError(error, "tenant_disabled"));
  const suspended = running.id === id ? (claimed[0]?.id ?? "") : id;
  await assert.rejects(resumeWork(work.db, { tenant, work: suspended, by, how: "requeued" }), (error) =>
    isHoldfastError(error, "tenant_disabled"),
  );
  assert.equal(await disableTenant(work.db, tenant), 0n, "again finds the rest");
});

test("W11: a claim of a tenant that was disabled meanwhile is suspended when it asks for its permit", async (t) => {
  const one = await bench(t, { policy: legacy() });
  const id = await one.give();
  const worker = one.hands();
  const { claimed } = await worker.claim();
  await one.ask("update holdfast.tenants set disabled_at = now() where tenant_id = 'acme'");
  assert.deepEqual(
    (await worker.ask(...claimed)).passed.map(({ what }) => what),
    ["suspended"],
  );
  assert.equal(await one.state(id), "suspended");
});

test("W5: recovery is refused while the lease holds, however often it is asked", async (t) => {
  const one = await bench(t, { policy: legacy() });
  await one.give();
  const item = await one.hands().permit();
  assert.deepEqual(await recoverWork(one.work.db, [item]), ["busy"]);
});
