import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { withClient } from "../../test/support/database.ts";
import { type Kernel, openKernel, tenantA, tenantB } from "../../test/support/kernel.ts";
import { until } from "../../test/support/until.ts";
import { isHoldfastError } from "./errors.ts";
import { brandId, type IncarnationId, type TenantId, uuidv7 } from "./ids.ts";
import {
  claimLeases,
  deleteLease,
  expireLeasesOf,
  insertHeldLease,
  insertLease,
  returnLease,
} from "./lease.store.ts";
import { fenceOf, type HeldLease, type LeasePriority } from "./lease.ts";
import { transition } from "./postgres/transition.ts";
import { instant, microseconds, seconds } from "./time.ts";

const newHolder = () => brandId<IncarnationId>(uuidv7());

/** Leases of kind execution that are due, made as the gateway makes them. */
async function due(
  kernel: Kernel,
  count: number,
  options: { tenant?: TenantId; priority?: LeasePriority } = {},
): Promise<string[]> {
  const { tenant = tenantA, priority = 2 } = options;
  const resources = Array.from({ length: count }, () => uuidv7());
  await transition(kernel.db, { role: "gateway", tenant, name: "make" }, async (tx) => {
    for (const resource of resources) {
      await insertLease(tx, { kind: "execution", resource, priority, dueAt: tx.now });
    }
  });
  return resources;
}

/** Many later or due rows at once. */
async function backlog(kernel: Kernel, tenant: string, count: number, dueIn: string): Promise<void> {
  await kernel.ask(
    `insert into holdfast.leases (tenant_id, kind, resource_id, due_at, wake_at)
     select $1, 'execution', gen_random_uuid(), now() + $3::interval, now() + $3::interval
     from generate_series(1, $2)`,
    [tenant, count, dueIn],
  );
}

const claim = (kernel: Kernel, options: Partial<Parameters<typeof claimLeases>[1]> = {}) =>
  claimLeases(kernel.db, { kind: "execution", holder: newHolder(), limit: 100, quota: 100, ...options });

async function claimOne(
  kernel: Kernel,
  options: Partial<Parameters<typeof claimLeases>[1]> = {},
): Promise<HeldLease> {
  const [lease, ...more] = await claim(kernel, options);
  assert.ok(lease);
  assert.equal(more.length, 0);
  return lease;
}

/** As if its time had passed. */
const expire = (kernel: Kernel, lease: HeldLease) =>
  kernel.ask("update holdfast.leases set wake_at = clock_timestamp() where resource_id = $1", [
    lease.resource,
  ]);

const write = (kernel: Kernel, lease: HeldLease) =>
  transition(
    kernel.db,
    { role: "controller", tenant: lease.tenant, name: "write", fence: fenceOf(lease) },
    async (tx) => tx.now,
  );
const fenced = (error: unknown) => isHoldfastError(error, "fenced");

describe("E5: taking leases", () => {
  test("E5: an unexpired lease is not taken by anyone else", async (t) => {
    const kernel = await openKernel(t);
    await due(kernel, 1);
    const lease = await claimOne(kernel);
    assert.deepEqual(await claim(kernel), []);
    assert.equal((await write(kernel, lease)) > 0n, true);
  });

  test("E5: an expired lease is taken with a higher epoch", async (t) => {
    const kernel = await openKernel(t);
    const [resource] = await due(kernel, 1);
    const first = await claimOne(kernel);
    await expire(kernel, first);
    const second = await claimOne(kernel);
    assert.equal(second.resource, resource);
    assert.ok(second.epoch > first.epoch);
    assert.notEqual(second.holder, first.holder);
  });

  test("E5: what a process that is over still held can be taken at once", async (t) => {
    const kernel = await openKernel(t);
    await due(kernel, 3);
    const [dead, alive] = [newHolder(), newHolder()];
    assert.equal((await claim(kernel, { holder: dead, limit: 2 })).length, 2);
    assert.equal((await claim(kernel, { holder: alive })).length, 1);
    assert.equal(await expireLeasesOf(kernel.db, dead), 2);
    assert.equal((await claim(kernel)).length, 2);
  });

  test("S4: epochs only grow, over claims, returns and takeovers, and the database refuses a lower one", async (t) => {
    const kernel = await openKernel(t);
    await due(kernel, 1);
    let last = 0n;
    for (let round = 0; round < 5; round += 1) {
      const lease = await claimOne(kernel);
      assert.ok(lease.epoch > last);
      last = lease.epoch;
      if (round % 2 === 0) await expire(kernel, lease);
      else {
        await transition(
          kernel.db,
          { role: "controller", tenant: tenantA, name: "return", fence: fenceOf(lease) },
          (tx) => returnLease(tx, lease, tx.now),
        );
      }
    }
    await assert.rejects(kernel.ask("update holdfast.leases set epoch = epoch - 1"), { code: "HF002" });
  });

  test("E5: a lease is due at its instant, and a returned one at the instant it was given", async (t) => {
    const kernel = await openKernel(t);
    await backlog(kernel, tenantA, 3, "1 hour");
    assert.deepEqual(await claim(kernel), []);
    await due(kernel, 1);
    const lease = await claimOne(kernel);
    await transition(
      kernel.db,
      { role: "controller", tenant: tenantA, name: "return", fence: fenceOf(lease) },
      (tx) => returnLease(tx, lease, instant(tx.now + seconds(3_600))),
    );
    assert.deepEqual(await claim(kernel), []);
  });
});

describe("E6: writing under a lease", () => {
  test("E6: a missing lease is refused (HF001)", async (t) => {
    const kernel = await openKernel(t);
    await due(kernel, 1);
    const lease = await claimOne(kernel);
    await transition(
      kernel.db,
      { role: "controller", tenant: tenantA, name: "finish", fence: fenceOf(lease) },
      (tx) => deleteLease(tx, lease),
    );
    await assert.rejects(write(kernel, lease), fenced);
  });

  test("E6: an expired lease is refused (HF001), though nobody has taken it", async (t) => {
    const kernel = await openKernel(t);
    await due(kernel, 1);
    const lease = await claimOne(kernel);
    await expire(kernel, lease);
    await assert.rejects(write(kernel, lease), fenced);
  });

  test("E6: a superseded lease is refused (HF001), also when the same process took it again", async (t) => {
    const kernel = await openKernel(t);
    await due(kernel, 1);
    const holder = newHolder();
    const first = await claimOne(kernel, { holder });
    await expire(kernel, first);
    const second = await claimOne(kernel, { holder });
    await assert.rejects(write(kernel, first), fenced);
    await write(kernel, second);
  });

  test("E6: another tenant's transition can't use the fence", async (t) => {
    const kernel = await openKernel(t);
    await due(kernel, 1);
    const lease = await claimOne(kernel);
    await assert.rejects(write(kernel, { ...lease, tenant: tenantB }), fenced);
  });

  test("E6: a lease that expires while the writer waits for its row is refused", async (t) => {
    const kernel = await openKernel(t);
    await due(kernel, 1);
    const lease = await claimOne(kernel);
    await withClient(kernel.database.superuser, async (other) => {
      await other.query("begin");
      await other.query("update holdfast.leases set wake_at = clock_timestamp() where resource_id = $1", [
        lease.resource,
      ]);
      const writing = write(kernel, lease);
      const refused = assert.rejects(writing, fenced);
      await until("the writer waits for the row", kernel.blocked);
      await other.query("commit");
      await refused;
    });
  });

  test("E6: a lease that its maker holds from the start fences like a claimed one", async (t) => {
    const kernel = await openKernel(t);
    const holder = newHolder();
    const lease = await transition(kernel.db, { role: "controller", tenant: tenantA, name: "start" }, (tx) =>
      insertHeldLease(tx, { tenant: tenantA, kind: "execution", resource: uuidv7(), holder, dueAt: tx.now }),
    );
    assert.deepEqual(await claim(kernel), []);
    await write(kernel, lease);
    await expire(kernel, lease);
    await assert.rejects(write(kernel, lease), fenced);
  });
});

describe("claims by many", () => {
  test("E5: 32 claimers on eight connections: each lease has one owner, and none is left", async (t) => {
    const kernel = await openKernel(t);
    await Promise.all([due(kernel, 120), due(kernel, 80, { tenant: tenantB })]);
    const claimers = Array.from({ length: 32 }, async () => {
      const holder = newHolder();
      const mine: HeldLease[] = [];
      for (let empty = 0; empty < 2; ) {
        const taken = await claim(kernel, { holder, limit: 7, quota: 4 });
        mine.push(...taken);
        empty = taken.length === 0 ? empty + 1 : 0;
      }
      return mine;
    });
    const leases = (await Promise.all(claimers)).flat();
    assert.equal(leases.length, 200);
    assert.equal(new Set(leases.map((lease) => lease.resource)).size, 200);
    assert.equal(new Set(leases.map((lease) => lease.epoch)).size, 200);
    const rows = await kernel.ask<{ resource_id: string; holder: string; epoch: string }>(
      "select resource_id, holder, epoch from holdfast.leases",
    );
    const stored = new Map(rows.map((row) => [row.resource_id, `${row.holder} ${row.epoch}`]));
    for (const lease of leases) assert.equal(stored.get(lease.resource), `${lease.holder} ${lease.epoch}`);
  });

  test("claims skip rows that another claim has locked", async (t) => {
    const kernel = await openKernel(t);
    const [locked, free] = await due(kernel, 2);
    await withClient(kernel.database.superuser, async (other) => {
      await other.query("begin");
      await other.query("select from holdfast.leases where resource_id = $1 for update", [locked]);
      assert.deepEqual(
        (await claim(kernel)).map((lease) => lease.resource),
        [free],
      );
      await other.query("rollback");
    });
    assert.deepEqual(
      (await claim(kernel)).map((lease) => lease.resource),
      [locked],
    );
  });

  test("a tenant with 10,000 due leases delays nobody, and takes no more than its quota", async (t) => {
    const kernel = await openKernel(t);
    await backlog(kernel, "tenant-big", 10_000, "-1 hour");
    await due(kernel, 3, { tenant: tenantB });
    const leases = await claim(kernel, { limit: 20, quota: 8 });
    const of = (tenant: string) => leases.filter((lease) => lease.tenant === tenant).length;
    assert.equal(of(tenantB), 3);
    assert.equal(of("tenant-big"), 8);
  });

  test("more due tenants than a claim takes: those that have waited longest come first, and no other row is touched", async (t) => {
    const kernel = await openKernel(t);
    for (let tenant = 0; tenant < 40; tenant += 1)
      await backlog(kernel, `t${tenant}`, 5, `-${100 - tenant} min`);
    const leases = await claim(kernel, { limit: 10, quota: 5 });
    assert.deepEqual(
      leases.map((lease) => lease.tenant).sort(),
      Array.from({ length: 10 }, (_, tenant) => `t${tenant}`).sort(),
    );
    // A row that was locked or written carries the claim's transaction.
    const touched = await kernel.ask("select from holdfast.leases where xmax <> 0 and holder is null");
    assert.equal(touched.length, 0);
  });

  test("the most urgent come first, whoever waits behind", async (t) => {
    const kernel = await openKernel(t);
    await due(kernel, 5, { priority: 3 });
    await due(kernel, 5, { priority: 1, tenant: tenantB });
    const urgent = await due(kernel, 5, { priority: 0 });
    const leases = await claim(kernel, { limit: 5, quota: 5 });
    assert.deepEqual(leases.map((lease) => lease.resource).sort(), [...urgent].sort());
  });

  test("a lease is never believed in for longer here than in the database", async (t) => {
    const kernel = await openKernel(t);
    await due(kernel, 1);
    const before = process.hrtime.bigint();
    const lease = await claimOne(kernel, { leaseUs: microseconds(1_500_000n) });
    const after = process.hrtime.bigint();
    assert.ok(
      lease.heldUntilMs >= Number(before) / 1e6 + 1_499 && lease.heldUntilMs <= Number(after) / 1e6 + 1_500,
    );
  });
});
