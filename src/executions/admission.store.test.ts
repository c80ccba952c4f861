import assert from "node:assert/strict";
import { test } from "node:test";
import { type Attempts, openAttempts } from "../../test/support/attempts.ts";
import { tenantA, tenantB } from "../../test/support/kernel.ts";
import { isHoldfastError } from "../core/errors.ts";
import { brandId, type TenantId } from "../core/ids.ts";
import { transition } from "../core/postgres/transition.ts";
import { createTenant } from "../core/tenant.store.ts";
import type { ErrorCode } from "../wire/errors.ts";
import { type Admission, refuseAdmission, returnAdmission } from "./admission.store.ts";
import { patchJob } from "./job.store.ts";

const refused = (code: ErrorCode) => (error: unknown) => isHoldfastError(error, code);
const jobsOf = (admissions: readonly Admission[]) => admissions.map(({ job }) => job);

async function taken(bench: Attempts): Promise<number> {
  const rows = await bench.kernel.ask("select from holdfast.slots where attempt_id is not null");
  return rows.length;
}

/** Every waiting job is about to be started, as if nobody had counted the slots. */
async function admitEverybody(bench: Attempts): Promise<Admission[]> {
  const rows = await bench.kernel.ask<{ tenant_id: TenantId; resource_id: Admission["job"]; epoch: bigint }>(
    `update holdfast.leases set holder = $1, epoch = nextval('holdfast.lease_epochs'), wake_at = now() + interval '30 seconds'
     where kind = 'admission' returning tenant_id, resource_id, epoch`,
    [bench.holder],
  );
  return rows.map((row) => ({
    tenant: row.tenant_id,
    job: row.resource_id,
    holder: bench.holder,
    epoch: row.epoch,
  }));
}

test("E2: however many start at once, over all tenants, no more than the pool's slots are ever taken", async (t) => {
  const bench = await openAttempts(t);
  const tenants: TenantId[] = [tenantA, tenantB];
  for (const name of ["c", "d", "e"]) tenants.push(await createTenant(bench.db, name));
  const jobs = 20;
  for (let n = 0; n < jobs; n += 1) await bench.submit({ tenant: tenants[n % tenants.length] ?? tenantA });

  const outcomes = await Promise.allSettled((await admitEverybody(bench)).map((one) => bench.start(one)));
  const started = outcomes.flatMap((outcome) => (outcome.status === "fulfilled" ? [outcome.value] : []));
  assert.equal(started.length, 2);
  for (const outcome of outcomes) {
    if (outcome.status === "rejected") assert.ok(isHoldfastError(outcome.reason, "no_slot"), outcome.reason);
  }
  const [row] = await bench.kernel.ask(
    `select (select count(*)::int from holdfast.slots where attempt_id is not null) as slots,
       (select count(*)::int from holdfast.execution_attempts) as attempts,
       (select count(*)::int from holdfast.jobs where state = 'running') as running,
       (select count(*)::int from holdfast.leases where kind = 'admission') as waiting`,
  );
  assert.deepEqual(row, { slots: 2, attempts: 2, running: 2, waiting: jobs - 2 });
});

test("E2: several controllers take and finish everything, two at a time", async (t) => {
  const bench = await openAttempts(t);
  const jobs = 12;
  for (let n = 0; n < jobs; n += 1) await bench.submit({ tenant: n % 3 === 0 ? tenantB : tenantA });
  let most = 0;
  let done = 0;
  async function controller(): Promise<void> {
    while (done < jobs) {
      const [admission] = await bench.claim({ limit: 1 });
      if (admission === undefined) continue;
      const { lease } = await bench.start(admission);
      assert.ok(lease);
      most = Math.max(most, await taken(bench));
      await bench.driveTo(lease, "finish");
      await bench.finish(lease);
      done += 1;
    }
  }
  await Promise.all([controller(), controller(), controller(), controller()]);
  assert.equal(most, 2);
  const rows = await bench.kernel.ask(
    "select count(*)::int as attempts, count(distinct job_id)::int as jobs from holdfast.execution_attempts where outcome = 'succeeded'",
  );
  assert.deepEqual(rows, [{ attempts: jobs, jobs }]);
  assert.equal(await taken(bench), 0);
});

test("E2: the database itself has no third slot to give, and no slot twice", async (t) => {
  const bench = await openAttempts(t);
  const [one, two] = [await bench.begin(), await bench.begin()];
  await bench.submit();
  const [third] = await admitEverybody(bench);
  assert.ok(third);
  const before = await bench.digest();
  await assert.rejects(bench.start(third), refused("no_slot"));
  assert.equal(await bench.digest(), before);
  const { ask } = bench.kernel;
  await assert.rejects(
    ask(
      "insert into holdfast.slots (pool, slot, tenant_id, attempt_id, taken_at) values ('default', 3, $1, $2, now())",
      [tenantA, one.attempt],
    ),
    /slots_one_an_attempt/,
  );
  await assert.rejects(
    ask("update holdfast.slots set attempt_id = $1 where attempt_id = $2", [one.attempt, two.attempt]),
    /slots_one_an_attempt/,
  );
  await ask("set role holdfast_controller");
  await ask("select set_config('holdfast.tenant', $1, false)", [tenantB]);
  await assert.rejects(
    ask("insert into holdfast.slots (pool, slot) values ('default', 3)"),
    /permission denied/,
  );
  // Another tenant's slots are not even seen, so nobody takes them away.
  assert.deepEqual(
    await ask(
      "update holdfast.slots set tenant_id = null, attempt_id = null, taken_at = null returning slot",
    ),
    [],
  );
  await ask("reset role");
});

test("E2: claims never take more jobs than there are free slots, however many claim at once", async (t) => {
  const bench = await openAttempts(t, { slots: 5 });
  for (let n = 0; n < 20; n += 1) await bench.submit({ tenant: n % 2 === 0 ? tenantA : tenantB });
  const claimed = await Promise.all(Array.from({ length: 8 }, () => bench.claim({ limit: 3 })));
  assert.equal(new Set(claimed.flatMap(jobsOf)).size, 5);
  assert.equal(claimed.flat().length, 5);
  assert.deepEqual(await bench.claim(), []);
});

test("E2: within a tenant the most urgent goes first, then the one that has waited longest", async (t) => {
  const bench = await openAttempts(t, { slots: 10 });
  const slow = [];
  for (const priority of [2, 3, 1, 2, 0, 1]) slow.push({ priority, job: await bench.submit({ priority }) });
  const patched = slow[0];
  assert.ok(patched);
  patched.priority = 3;
  await transition(bench.db, { role: "gateway", tenant: tenantA, name: "patch" }, (tx) =>
    patchJob(tx, { job: patched.job, patch: { priority: 3 } }),
  );
  const expected = slow.toSorted((a, b) => a.priority - b.priority).map(({ job }) => job);
  const order = [];
  for (let n = 0; n < slow.length; n += 1) order.push(...jobsOf(await bench.claim({ limit: 1 })));
  assert.deepEqual(order, expected);
});

test("E2: who finds no slot goes on waiting where it was in the order", async (t) => {
  const bench = await openAttempts(t);
  const jobs = [await bench.submit(), await bench.submit(), await bench.submit()];
  const [first] = await bench.claim({ limit: 1 });
  assert.ok(first);
  assert.equal(first.job, jobs[0]);
  await returnAdmission(bench.db, first);
  assert.deepEqual(new Set(jobsOf(await bench.claim({ limit: 2 }))), new Set(jobs.slice(0, 2)));
});

test("E2: a job whose starter died waits on in its old place, not behind those that came later", async (t) => {
  const bench = await openAttempts(t);
  const jobs = [await bench.submit(), await bench.submit(), await bench.submit()];
  const [first] = await bench.claim({ limit: 1 });
  assert.ok(first);
  assert.equal(first.job, jobs[0]);
  await bench.kernel.ask("update holdfast.leases set wake_at = now() where resource_id = $1", [first.job]);
  const [again] = await bench.claim({ limit: 1 });
  assert.equal(again?.job, jobs[0]);
  assert.ok(again && again.epoch > first.epoch);
  await assert.rejects(bench.start(first), refused("fenced"));
});

test("E2: a tenant with a long backlog does not delay another, also when slots come free one by one", async (t) => {
  const bench = await openAttempts(t);
  for (let n = 0; n < 30; n += 1) await bench.submit({ priority: 0 });
  const other = await bench.submit({ tenant: tenantB, priority: 3 });
  // Two controllers that take one each, before either has started what it took.
  const [one] = await bench.claim({ limit: 1 });
  const [two] = await bench.claim({ limit: 1 });
  assert.ok(one && two);
  assert.deepEqual([one.tenant, two.tenant, two.job], [tenantA, tenantB, other]);
  await bench.start(one);
  const begun = await bench.start(two);
  const late = await bench.submit({ tenant: tenantB });
  assert.ok(begun.lease);
  await bench.driveTo(begun.lease, "nothing");
  // Neither holds more slots than the other would: the one that holds none comes first.
  assert.deepEqual(jobsOf(await bench.claim()), [late]);
});

test("E2: pools are separate, one without slots starts nothing, and one that does not exist is refused", async (t) => {
  const bench = await openAttempts(t);
  await assert.rejects(bench.submit({ pool: "large" }), { code: "invalid_request" });
  await bench.kernel.ask("insert into holdfast.slots (pool, slot) values ('large', 1)");
  const large = await bench.submit({ pool: "large" });
  // An operator takes the pool's last slot away while a job waits for it.
  await bench.kernel.ask("delete from holdfast.slots where pool = 'large'");
  const plain = await bench.submit();
  assert.deepEqual(jobsOf(await bench.claim()), [plain]);
  assert.deepEqual(await bench.claim({ pool: "large" }), []);
  await bench.kernel.ask("insert into holdfast.slots (pool, slot) values ('large', 1)");
  const [claimed] = await bench.claim({ pool: "large" });
  assert.equal(claimed?.job, large);
  assert.ok((await bench.start(claimed)).lease);
  const rows = await bench.kernel.ask("select pool from holdfast.slots where attempt_id is not null");
  assert.deepEqual(rows, [{ pool: "large" }]);
});

test("E2 G8: a job that is cancelled after it was claimed is not started", async (t) => {
  const bench = await openAttempts(t);
  const job = await bench.submit();
  const [claimed] = await bench.claim();
  assert.ok(claimed);
  await bench.cancel(job);
  await assert.rejects(bench.start(claimed), refused("fenced"));
  await assert.rejects(returnAdmission(bench.db, claimed), refused("fenced"));
  await assert.rejects(refuseAdmission(bench.db, claimed, { code: "c", message: "m" }), refused("fenced"));
  const rows = await bench.kernel.ask("select state from holdfast.jobs");
  assert.deepEqual(rows, [{ state: "cancelled" }]);
  assert.equal(await taken(bench), 0);
});

test("a job whose plan is refused fails and leaves the queue", async (t) => {
  const bench = await openAttempts(t);
  const job = await bench.submit();
  const [claimed] = await bench.claim();
  assert.ok(claimed);
  await refuseAdmission(bench.db, claimed, { code: "plan_refused", message: "m" });
  const rows = await bench.kernel.ask(
    "select state, failure_code, (select count(*)::int from holdfast.leases) as leases from holdfast.jobs where job_id = $1",
    [brandId(job)],
  );
  assert.deepEqual(rows, [{ state: "failed", failure_code: "plan_refused", leases: 0 }]);
});
