import assert from "node:assert/strict";
import { after, test } from "node:test";
import { commit, openAttempts } from "../../test/support/attempts.ts";
import { tenantA, tenantB } from "../../test/support/kernel.ts";
import { until } from "../../test/support/until.ts";
import { isHoldfastError } from "../core/errors.ts";
import type { ErrorCode } from "../wire/errors.ts";
import { listExecutionsToClean, markExecutionCleaned } from "./attempt.store.ts";
import { recordLogEnd, recordRemoved, recordStopping } from "./phase.store.ts";

const bench = await openAttempts({ after }, { slots: 60 });
const { db, kernel } = bench;
const { ask } = kernel;

const refused = (code: ErrorCode) => (error: unknown) => isHoldfastError(error, code);

async function refusedWithoutChange(code: ErrorCode, what: () => Promise<unknown>): Promise<void> {
  const before = await bench.digest();
  await assert.rejects(what(), refused(code));
  assert.equal(await bench.digest(), before, "something was changed");
}

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
  await bench.driveTo(lease, "finish");
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
  await bench.driveTo(lease, "finish");
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
  const { lease, attempt } = await bench.begin();
  await bench.driveTo(lease, "finish");
  await bench.overdue(attempt);
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
