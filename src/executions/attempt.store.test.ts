import assert from "node:assert/strict";
import { after, test } from "node:test";
import { commit, openAttempts, outcomeOf } from "../../test/support/attempts.ts";
import { tenantA, tenantB } from "../../test/support/kernel.ts";
import { until } from "../../test/support/until.ts";
import { isHoldfastError } from "../core/errors.ts";
import { brandId, type IncarnationId, uuidv7 } from "../core/ids.ts";
import { claimLeases, returnLease } from "../core/lease.store.ts";
import type { HeldLease } from "../core/lease.ts";
import type { ErrorCode } from "../wire/errors.ts";
import {
  executionKind,
  listExecutionsToClean,
  markExecutionCleaned,
  readAttemptSnapshot,
  underLease,
} from "./attempt.store.ts";
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
  assert.deepEqual({ ...after, now: 0n }, { ...view, now: 0n });
  // Nobody takes what is held.
  const more = { kind: executionKind, queue: "process", holder: bench.holder, limit: 9, quota: 9 } as const;
  assert.ok((await claimLeases(db, more)).every(({ resource }) => resource !== attempt));
});

test("E5: cancelled and overdue attempts are leased too, and what runs of them is stopped", async () => {
  const cancelled = await bench.begin();
  await bench.released(cancelled.lease);
  await bench.cancel(cancelled.job);
  const overdue = await bench.begin({
    deadline: "300ms",
    phases: [{ name: "p", kind: "compile", command: ["x"], grace: "1ms" }],
  });
  await bench.released(overdue.lease);
  await until("overdue", async () => {
    const { now, deadline } = await bench.look(overdue.lease);
    return now >= deadline;
  });
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
  let late: Promise<unknown> = Promise.resolve();
  // Somebody's takeover holds the lease's row while the write comes.
  await ask("begin");
  await ask("select from holdfast.leases where resource_id = $1 for no key update", [lease.resource]);
  late = recordStopping(db, lease, sandbox, "cancelled");
  await until("the write waits", () =>
    ask<{ pid: number }>(
      "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
    ).then((rows) => rows.length > 0),
  );
  await ask("update holdfast.leases set epoch = nextval('holdfast.lease_epochs') where resource_id = $1", [
    lease.resource,
  ]);
  await ask("commit");
  await assert.rejects(late, refused("fenced"));
  assert.equal((await bench.look(lease)).sandboxes[0]?.state, "released");
});

test("E10: an attempt does not finish while anything of it is not proven stopped, or its output not stored", async () => {
  const { lease, attempt } = await bench.begin();
  await bench.driveTo(lease, "hold");
  const finish = () => bench.finish(lease, { outcome: "failed" });
  for (const state of ["planned", "held", "released", "stopping"]) {
    await refusedWithoutChange("conflict", finish);
    const [sandbox] = (await bench.look(lease)).sandboxes;
    assert.ok(sandbox?.state === state);
    if (state === "released") await recordStopping(db, lease, sandbox, "cancelled");
    else await bench.step(lease);
  }
  // Stopped by now; its output is not stored yet.
  await refusedWithoutChange("conflict", finish);
  const [sandbox] = (await bench.look(lease)).sandboxes;
  assert.ok(sandbox?.state === "stopped");
  await recordLogEnd(db, lease, sandbox.id, "the disk is gone");
  assert.equal(await finish(), "failed");
  const [row] = await ask<{ slots: number }>(
    "select count(*)::int as slots from holdfast.slots where attempt_id = $1",
    [attempt],
  );
  assert.equal(row?.slots, 0, "the slot is returned with the end");
});

test("E10: not proven stopped but overridden by an operator is an end too", async () => {
  const { lease } = await bench.begin();
  const view = await bench.released(lease);
  await ask(
    `update holdfast.sandbox_attempts set state = 'stopped', stopped_at = now(), outcome = 'unknown',
       overridden_by = gen_random_uuid(), log_lost_reason = 'overridden' where sandbox_id = $1`,
    [view.sandboxes[0]?.id],
  );
  assert.equal(await bench.finish(lease, { outcome: "failed" }), "failed");
});

test("E10: of cancellation and publication exactly one wins, whichever comes first", async () => {
  for (const first of ["cancel", "finish"] as const) {
    const { lease, job } = await bench.begin();
    await bench.driveTo(lease, "finish");
    // Both wait for the job's row; they get it in the order in which they came.
    await ask("begin");
    await ask("select from holdfast.jobs where job_id = $1 for no key update", [job]);
    const waiting = (count: number) =>
      until(`${count} wait`, async () => {
        const rows = await ask(
          "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
        );
        return rows.length === count;
      });
    const actions = { cancel: () => bench.cancel(job), finish: () => bench.finish(lease) };
    const one = actions[first]();
    await waiting(1);
    const two = actions[first === "cancel" ? "finish" : "cancel"]();
    await waiting(2);
    await ask("commit");
    const [, late] = await Promise.allSettled([one, two]);
    const [row] = await ask(
      `select j.state, j.cancel_requested_at is not null as asked, a.outcome, a.state as attempt,
         (select count(*)::int from holdfast.slots s where s.attempt_id = a.attempt_id) as slots
       from holdfast.jobs j join holdfast.execution_attempts a using (tenant_id, job_id) where job_id = $1`,
      [job],
    );
    if (first === "cancel") {
      assert.deepEqual(late, { status: "fulfilled", value: "cancelled" });
      assert.deepEqual(row, {
        state: "cancelled",
        asked: true,
        outcome: "cancelled",
        attempt: "finished",
        slots: 0,
      });
    } else {
      assert.ok(late.status === "rejected" && isHoldfastError(late.reason, "conflict"));
      assert.deepEqual(row, {
        state: "succeeded",
        asked: false,
        outcome: "succeeded",
        attempt: "finished",
        slots: 0,
      });
    }
  }
});

test("E10: finishing twice changes nothing and gives the outcome that stands; nobody is cancelled unasked", async () => {
  const { lease } = await bench.begin();
  await bench.driveTo(lease, "finish");
  await refusedWithoutChange("conflict", () => bench.finish(lease, { outcome: "cancelled" }));
  const [one, other] = await Promise.all([bench.finish(lease), bench.finish(lease, { outcome: "failed" })]);
  assert.equal(one, other);
  const before = await bench.digest();
  assert.equal(await bench.finish(lease, { outcome: one === "failed" ? "succeeded" : "failed" }), one);
  assert.equal(await bench.digest(), before);
});

test("E11 E20: publication stores the retention deadline from the configuration, and only with success", async () => {
  for (const outcome of ["succeeded", "failed"] as const) {
    const { lease, job, attempt } = await bench.begin({ kinds: ["publish"] });
    const view = await bench.released(lease);
    await ask(
      `with o as (insert into holdfast.attempt_objects
         (tenant_id, attempt_id, phase, name, blob_key, bytes, sha256, media_type, sandbox_id, stored_at)
       values ($1, $2::uuid, 'publish', 'site', 'key-of-' || $2::text, 3, repeat('a', 64), 'text/plain', $3, now()))
       update holdfast.execution_attempts set artifact_object = 'site', artifact_manifest = '[]' where attempt_id = $2::uuid`,
      [tenantA, attempt, view.sandboxes[0]?.id],
    );
    await bench.driveTo(lease, "finish", { exitCode: outcome === "succeeded" ? 0 : 1 });
    await bench.finish(lease, { outcome, retentionUs: 86_400_000_001n });
    const rows = await ask(
      `select retain_until = published_at + interval '1 day 1 microsecond' as kept,
         published_at = (select finished_at from holdfast.execution_attempts where attempt_id = $2) as at_the_end
       from holdfast.artifacts where job_id = $1`,
      [job, attempt],
    );
    assert.deepEqual(rows, outcome === "succeeded" ? [{ kept: true, at_the_end: true }] : []);
  }
});

test("E12: a failure is retried once, from scratch, and only when the queue has room", async () => {
  const first = await bench.begin({
    attempts: 2,
    sources: { engine: { repository: "r", ref: "main" } },
    kinds: ["source", "compile"],
  });
  await bench
    .driveTo(first.lease, "finish", { exitCode: 0, pins: { engine: commit } })
    .catch(() => undefined);
  await bench.finish(first.lease, { outcome: "failed", attemptsMax: 2 });
  const [row] = await ask("select state, failure_code, finished_at from holdfast.jobs where job_id = $1", [
    first.job,
  ]);
  assert.deepEqual(row, { state: "queued", failure_code: null, finished_at: null });
  const [again] = await bench.claim();
  assert.ok(again?.job === first.job);
  const second = await bench.start(again);
  assert.ok(second.lease);
  assert.notEqual(second.attempt, first.attempt);
  const view = await bench.look(second.lease);
  assert.deepEqual(
    [view.ordinal, view.sandboxes, view.pins, view.phases.map(({ state }) => state)],
    [2, [], {}, ["pending", "pending"]],
  );
  await bench.driveTo(second.lease, "finish", { exitCode: 1 });
  await bench.finish(second.lease, {
    outcome: "failed",
    attemptsMax: 2,
    failure: { code: "phase_failed", message: "m" },
  });
  const [end] = await ask("select state, failure_code from holdfast.jobs where job_id = $1", [first.job]);
  assert.deepEqual(end, { state: "failed", failure_code: "phase_failed" });
});

test("E12: without room in the queue the failure stands; cancellation never retries", async () => {
  const full = await bench.begin({ attempts: 2 });
  await bench.driveTo(full.lease, "finish", { exitCode: 1 });
  await bench.finish(full.lease, { outcome: "failed", attemptsMax: 2, queueMax: 0 });
  const cancelled = await bench.begin({ attempts: 2 });
  await bench.driveTo(cancelled.lease, "finish", { exitCode: 1 });
  await bench.cancel(cancelled.job);
  await bench.finish(cancelled.lease, { outcome: "failed", attemptsMax: 2 });
  const rows = await ask<{ state: string }>(
    "select state from holdfast.jobs where job_id = any ($1) order by state",
    [[full.job, cancelled.job]],
  );
  assert.deepEqual(
    rows.map(({ state }) => state),
    ["cancelled", "failed"],
  );
  assert.deepEqual(await bench.claim(), []);
});

test("E12: what ends after the deadline has failed, even when all of it went well", async () => {
  const { lease, attempt } = await bench.begin({
    deadline: "400ms",
    phases: [{ name: "p", kind: "compile", command: ["x"], grace: "1ms" }],
  });
  await bench.driveTo(lease, "finish");
  await until("overdue", async () => {
    const { now, deadline } = await bench.look(lease);
    return now >= deadline;
  });
  assert.equal(await bench.finish(lease), "failed");
  const [row] = await ask(
    "select failure_code, deadline_reached_at is not null as reached from holdfast.execution_attempts where attempt_id = $1",
    [attempt],
  );
  assert.deepEqual(row, { failure_code: "deadline_exceeded", reached: true });
});

test("E12: a failure in as many words as a runtime may use is recorded, and ends the job", async () => {
  const { lease, job } = await bench.begin();
  await bench.driveTo(lease, "finish", { exitCode: 1 });
  const message = `Phase compile: ${"ü".repeat(1000)}`;
  await bench.finish(lease, { outcome: "failed", failure: { code: "phase_failed", message } });
  const [row] = await ask<{ failure_message: string }>(
    "select failure_message from holdfast.jobs where job_id = $1",
    [job],
  );
  assert.equal(row?.failure_message, message.slice(0, 1000));
});

test("E14: a completed attempt stays listed until it is marked, which needs everything of it removed", async () => {
  const { lease, attempt } = await bench.begin();
  const view = await bench.released(lease);
  await ask(
    `insert into holdfast.attempt_objects
       (tenant_id, attempt_id, phase, name, blob_key, bytes, sha256, media_type, sandbox_id)
     values ($1, $2, 'compile', 'tree', 'tree-key', 3, repeat('a', 64), 'text/plain', $3)`,
    [tenantA, attempt, view.sandboxes[0]?.id],
  );
  await bench.driveTo(lease, "clean");
  const listed = async (tenant = tenantA) =>
    (await listExecutionsToClean(db, tenant, 1000)).some(({ attempt_id }) => attempt_id === attempt);
  assert.ok(await listed());
  assert.ok(!(await listed(tenantB)));
  const mark = () => markExecutionCleaned(db, lease);
  await refusedWithoutChange("conflict", mark);
  for (const sandbox of (await bench.look(lease)).sandboxes) await recordRemoved(db, lease, sandbox);
  await refusedWithoutChange("conflict", mark);
  await ask("update holdfast.attempt_objects set removed_at = now() where attempt_id = $1", [attempt]);
  assert.ok(await listed());
  await mark();
  assert.ok(!(await listed()));
  const [row] = await ask(
    `select a.plan is not null as plan, a.state, s.uid is not null as uid, s.state as sandbox,
       (select count(*)::int from holdfast.leases where resource_id = a.attempt_id) as leases
     from holdfast.execution_attempts a join holdfast.sandbox_attempts s on s.owner_id = a.attempt_id
     where a.attempt_id = $1`,
    [attempt],
  );
  assert.deepEqual(row, { plan: true, state: "cleaned", uid: true, sandbox: "removed", leases: 0 });
  await refusedWithoutChange("fenced", mark);
});
