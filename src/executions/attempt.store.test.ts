import assert from "node:assert/strict";
import { after, test } from "node:test";
import { openAttempts, outcomeOf } from "../../test/support/attempts.ts";
import { tenantA, tenantB } from "../../test/support/kernel.ts";
import { until } from "../../test/support/until.ts";
import { isHoldfastError } from "../core/errors.ts";
import { brandId, type IncarnationId, uuidv7 } from "../core/ids.ts";
import { claimLeases, returnLease } from "../core/lease.store.ts";
import type { HeldLease } from "../core/lease.ts";
import type { ErrorCode } from "../wire/errors.ts";
import { executionKind, markExecutionCleaned, readAttemptSnapshot, underLease } from "./attempt.store.ts";
import { decide } from "./attempt.ts";
import {
  advancePhase,
  appendProgress,
  recordLogEnd,
  recordRelease,
  recordRemoved,
  recordResource,
  recordStopped,
  recordStopping,
  recordUnproven,
} from "./phase.store.ts";
import { planDigest } from "./plan.ts";

const bench = await openAttempts({ after }, { slots: 60 });
const { db, kernel } = bench;
const { ask } = kernel;

const refused = (code: ErrorCode) => (error: unknown) => isHoldfastError(error, code);
const violates = (constraint: string) => (error: unknown) =>
  error instanceof Error && "constraint" in error && error.constraint === constraint;
const raises = (sqlstate: string) => (error: unknown) =>
  error instanceof Error && "code" in error && error.code === sqlstate;

async function refusedWithoutChange(code: ErrorCode, what: () => Promise<unknown>): Promise<void> {
  const before = await bench.digest();
  await assert.rejects(what(), refused(code));
  assert.equal(await bench.digest(), before, "something was changed");
}

test("E1: the validated plan and its absolute deadline are recorded with the start, and never change", async () => {
  const { attempt, plan } = await bench.begin({ deadline: "90s" });
  const [row] = await ask<{ plan: unknown; plan_digest: string; exact: boolean; phases: string[] }>(
    `select plan, plan_digest, deadline = started_at + interval '90 seconds' as exact,
       (select array_agg(name || ' ' || state order by number) from holdfast.execution_phases p
        where p.attempt_id = a.attempt_id) as phases
     from holdfast.execution_attempts a where attempt_id = $1`,
    [attempt],
  );
  assert.deepEqual(row, { plan, plan_digest: planDigest(plan), exact: true, phases: ["compile pending"] });
  for (const change of [
    "plan = '{}'",
    "plan_digest = repeat('0', 64)",
    "deadline = deadline + interval '1 microsecond'",
    "started_at = started_at - interval '1 microsecond'",
    "pool = 'other'",
    "ordinal = 2",
  ]) {
    await assert.rejects(
      ask(`update holdfast.execution_attempts set ${change} where attempt_id = $1`, [attempt]),
      raises("HF002"),
      change,
    );
  }
});

test("E3: the same start again gives the same attempt, also without a lease and after it has finished", async () => {
  const job = await bench.submit();
  const [admission] = await bench.claim();
  assert.ok(admission?.job === job);
  const both = await Promise.all([bench.start(admission), bench.start(admission, { ordinal: 1 })]);
  assert.equal(both[0].attempt, both[1].attempt);
  assert.equal(both.filter(({ lease }) => lease !== null).length, 1);
  const lease = both.find((started) => started.lease !== null)?.lease;
  assert.ok(lease);
  const before = await bench.digest();
  assert.deepEqual(await bench.start(admission, { ordinal: 1 }), { ...both[0], lease: null });
  assert.equal(await bench.digest(), before);
  await bench.driveTo(lease, "nothing");
  assert.equal((await bench.start(admission, { ordinal: 1 })).attempt, both[0].attempt);
});

test("E3: the same start with a changed plan is a conflict and changes nothing", async () => {
  const job = await bench.submit();
  const [admission] = await bench.claim();
  assert.ok(admission?.job === job);
  const { lease } = await bench.start(admission);
  assert.ok(lease);
  const { plan } = await bench.look(lease);
  for (const changed of [
    { ...plan, deadline_us: String(BigInt(plan.deadline_us) + 1n) },
    { ...plan, phases: plan.phases.map((phase) => ({ ...phase, command: ["false"] })) },
  ]) {
    await refusedWithoutChange("plan_conflict", () => bench.start(admission, { plan: changed, ordinal: 1 }));
  }
  // Without the admission's lease no other attempt is started either.
  await refusedWithoutChange("fenced", () => bench.start(admission, { ordinal: 2 }));
});

test("E3: another tenant can neither start nor see it", async () => {
  const { lease, job, plan } = await bench.begin();
  await refusedWithoutChange("not_found", () =>
    bench.start({ tenant: tenantB, job, holder: bench.holder, epoch: lease.epoch }, { plan, ordinal: 1 }),
  );
  await assert.rejects(readAttemptSnapshot(db, tenantB, lease.resource), refused("not_found"));
  await refusedWithoutChange("fenced", () =>
    underLease(db, { ...lease, tenant: tenantB }, "test", async () => undefined),
  );
});

test("E4: the database refuses a third attempt, and a deadline beyond three hours", async () => {
  const { job, attempt } = await bench.begin();
  const insert = (ordinal: number, deadline: string) =>
    ask(
      `insert into holdfast.execution_attempts
         (tenant_id, job_id, ordinal, attempt_id, pool, plan, plan_digest, started_at, deadline, state, outcome, finished_at)
       select tenant_id, job_id, $2, gen_random_uuid(), pool, plan, plan_digest, started_at, started_at + $3::interval,
         'finished', 'cancelled', started_at
       from holdfast.execution_attempts where attempt_id = $1`,
      [attempt, ordinal, deadline],
    );
  await assert.rejects(insert(3, "1 hour"), violates("execution_attempts_at_most_two"));
  await assert.rejects(insert(0, "1 hour"), violates("execution_attempts_at_most_two"));
  const longer = "execution_attempts_deadline_within_three_hours";
  await assert.rejects(insert(2, "3 hours 1 microsecond"), violates(longer));
  await assert.rejects(insert(2, "0 seconds"), violates(longer));
  await insert(2, "3 hours");
  const [{ count } = { count: 0 }] = await ask<{ count: number }>(
    "select count(*)::int as count from holdfast.execution_attempts where job_id = $1",
    [job],
  );
  assert.equal(count, 2);
});

test("E4: a job that has had its two attempts starts no third", async () => {
  const first = await bench.begin({ attempts: 2 });
  await bench.driveTo(first.lease, "nothing", { exitCode: 1 });
  const [again] = await bench.claim();
  assert.ok(again?.job === first.job);
  const second = await bench.start(again);
  assert.ok(second.lease);
  await bench.driveTo(second.lease, "nothing", { exitCode: 1 });
  assert.deepEqual(await bench.claim(), []);
  await ask(
    `insert into holdfast.leases (tenant_id, kind, resource_id, due_at, wake_at, holder, epoch)
     values ($1, 'admission', $2, now(), now() + interval '1 minute', $3, 999999)`,
    [tenantA, first.job, bench.holder],
  );
  const admission = { tenant: tenantA, job: first.job, holder: bench.holder, epoch: 999999n };
  await refusedWithoutChange("attempts_exhausted", () => bench.start(admission, { ordinal: 3 }));
  await ask("delete from holdfast.leases where resource_id = $1", [first.job]);
});

test("E5: expiry keeps slot, phase, plan and UIDs; who takes it gets a higher epoch", async () => {
  const { lease, attempt } = await bench.begin();
  const view = await bench.released(lease);
  const facts = () =>
    ask(
      `select (select slot from holdfast.slots where attempt_id = $1),
         (select array_agg(name || state) from holdfast.execution_phases where attempt_id = $1) as phases,
         (select array_agg(uid || state) from holdfast.sandbox_attempts where owner_id = $1) as sandboxes,
         plan_digest, deadline, state from holdfast.execution_attempts where attempt_id = $1`,
      [attempt],
    );
  const before = await facts();
  await bench.expire(lease);
  assert.deepEqual(await facts(), before);
  const other = await bench.takeOver(lease);
  assert.ok(other.epoch > lease.epoch);
  assert.deepEqual(await facts(), before);
  const after = await bench.look(other);
  const looked = { now: 0n, seenAtMs: 0 };
  assert.deepEqual({ ...after, ...looked }, { ...view, ...looked });
  // Nobody takes what is held.
  const more = { kind: executionKind, queue: "process", holder: bench.holder, limit: 9, quota: 9 } as const;
  assert.ok((await claimLeases(db, more)).every(({ resource }) => resource !== attempt));
});

test("E5: cancelled and overdue attempts are leased too, and what runs of them is stopped", async () => {
  const cancelled = await bench.begin();
  await bench.released(cancelled.lease);
  await bench.cancel(cancelled.job);
  const overdue = await bench.begin();
  await bench.released(overdue.lease);
  await bench.overdue(overdue.attempt);
  for (const [begun, reason] of [
    [cancelled, "cancelled"],
    [overdue, "deadline"],
  ] as const) {
    const lease = await bench.takeOver(begun.lease);
    const step = decide(await bench.look(lease));
    assert.ok(step.do === "stop" && step.reason === reason);
    await bench.driveTo(lease, "nothing");
    const [row] = await ask(
      "select outcome, failure_code from holdfast.execution_attempts where attempt_id = $1",
      [begun.attempt],
    );
    assert.deepEqual(
      row,
      reason === "cancelled"
        ? { outcome: "cancelled", failure_code: null }
        : { outcome: "failed", failure_code: "deadline_exceeded" },
    );
  }
});

test("E6: no write of a controller whose lease expired or was superseded changes anything", async () => {
  const { lease } = await bench.begin({ kinds: ["compile", "compile"] });
  const view = await bench.released(lease);
  const [sandbox] = view.sandboxes;
  assert.ok(sandbox);
  const chunks = [{ stream: "stdout", at: view.now, text: "late\n" }] as const;
  const writes: Readonly<Record<string, (stale: HeldLease) => Promise<unknown>>> = {
    advancePhase: (stale) => advancePhase(db, stale, view, { ended: null, next: null }, "test"),
    recordResource: (stale) => recordResource(db, stale, sandbox, "another"),
    recordRelease: (stale) => recordRelease(db, stale, sandbox),
    recordStopping: (stale) => recordStopping(db, stale, sandbox, "cancelled"),
    recordStopped: (stale) => recordStopped(db, stale, sandbox, outcomeOf("exited"), "proof"),
    recordUnproven: (stale) => recordUnproven(db, stale, sandbox, "can't be asked"),
    appendProgress: (stale) =>
      appendProgress(db, stale, sandbox.id, { afterSeq: 0n, position: "p", chunks, truncated: false }),
    completeLog: (stale) => recordLogEnd(db, stale, sandbox.id, null),
    loseLog: (stale) => recordLogEnd(db, stale, sandbox.id, "gone"),
    finishExecution: (stale) => bench.finish(stale),
    recordRemoved: (stale) => recordRemoved(db, stale, sandbox),
    markExecutionCleaned: (stale) => markExecutionCleaned(db, stale),
    returnLease: (stale) => underLease(db, stale, "returnLease", (tx) => returnLease(tx, stale, tx.now)),
  };
  const refuseAll = async (stale: HeldLease, why: string) => {
    const before = await bench.digest();
    for (const [name, write] of Object.entries(writes)) {
      await assert.rejects(write(stale), refused("fenced"), `${name}, ${why}`);
      assert.equal(await bench.digest(), before, `${name}, ${why}`);
    }
  };
  await bench.expire(lease);
  await refuseAll(lease, "expired");
  const other = await bench.takeOver(lease);
  await refuseAll(lease, "superseded");
  await refuseAll({ ...other, holder: brandId<IncarnationId>(uuidv7()) }, "of another holder");
  await refuseAll({ ...other, epoch: other.epoch + 1n }, "of an epoch that was never given");
  await refuseAll({ ...other, tenant: tenantB }, "of another tenant");
  await bench.driveTo(other, "nothing");
  await refuseAll(other, "of an attempt that is done with");
});

test("E6: a write that waits for the takeover to commit is refused by it", async () => {
  const { lease } = await bench.begin();
  const view = await bench.released(lease);
  const [sandbox] = view.sandboxes;
  assert.ok(sandbox);
  // Somebody's takeover holds the lease's row while the write comes.
  await ask("begin");
  await ask("select from holdfast.leases where resource_id = $1 for no key update", [lease.resource]);
  // Listened to from the start: its refusal may come before the commit's answer.
  const refusal = assert.rejects(recordStopping(db, lease, sandbox, "cancelled"), refused("fenced"));
  await until("the write waits", () =>
    ask<{ pid: number }>(
      "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
    ).then((rows) => rows.length > 0),
  );
  await ask("update holdfast.leases set epoch = nextval('holdfast.lease_epochs') where resource_id = $1", [
    lease.resource,
  ]);
  await ask("commit");
  await refusal;
  assert.equal((await bench.look(lease)).sandboxes[0]?.state, "released");
});
