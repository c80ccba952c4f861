import assert from "node:assert/strict";
import { test } from "node:test";
import { type Kernel, openKernel, tenantA, tenantB } from "../../test/support/kernel.ts";
import type { ErrorCode } from "../wire/errors.ts";
import { isHoldfastError } from "./errors.ts";
import { brandId, type IncarnationId, uuidv7 } from "./ids.ts";
import type { HeldLease } from "./lease.ts";
import {
  beginTry,
  claimPublications,
  type Delivery,
  insertPublication,
  readPublication,
  redeliverPublication,
  type Settling,
  settlePublication,
} from "./outbox.store.ts";
import type { RetryPolicy } from "./outbox.ts";
import { transition, view } from "./postgres/transition.ts";
import { seconds } from "./time.ts";

const scope = { role: "controller", tenant: tenantA, name: "finish" } as const;
const policy: RetryPolicy = { first: seconds(60), max: seconds(600), triesMax: 2 };

const session = uuidv7();
let ordinal = 0n;

function publish(kernel: Kernel, change: { readonly source?: string; readonly destination?: string } = {}) {
  const { source = uuidv7(), destination = "hook" } = change;
  ordinal += 1n;
  const told = { session, ordinal, destination, payload: { reply: 1 } };
  return transition(kernel.db, scope, (tx) =>
    insertPublication(tx, { source: { kind: "activation", id: source }, ...told }),
  );
}

const claim = (kernel: Kernel) =>
  claimPublications(kernel.db, { holder: brandId<IncarnationId>(uuidv7()), limit: 10, quota: 10 });

const read = (kernel: Kernel, id: string, tenant = tenantA) =>
  view(kernel.db, { ...scope, tenant }, (tx) => readPublication(tx, id));

const begin = (kernel: Kernel, lease: HeldLease, settling?: Settling) => beginTry(kernel.db, lease, settling);

const redeliver = (kernel: Kernel, id: string, tenant = tenantA) =>
  transition(kernel.db, { role: "gateway", tenant, name: "redeliver" }, (tx) => redeliverPublication(tx, id));

/** A try that ends as it is told. */
async function tryOnce(kernel: Kernel, lease: HeldLease, delivery: Delivery, settling?: Settling) {
  assert.equal(await begin(kernel, lease, settling), "begun");
  return settlePublication(kernel.db, lease, delivery, settling);
}

const delivered = { delivered: true, status: 204 } as const;
const failed = { delivered: false, error: "503 from the destination", status: 503 } as const;
const is = (code: ErrorCode) => (error: unknown) => isHoldfastError(error, code);

async function claimOne(kernel: Kernel) {
  const [lease, ...more] = await claim(kernel);
  assert.ok(lease);
  assert.equal(more.length, 0);
  return lease;
}

const makeAllDue = (kernel: Kernel) =>
  kernel.ask("update holdfast.leases set holder = null, due_at = now(), wake_at = now()");

const operations = (kernel: Kernel, id: string) =>
  kernel
    .ask<{ operation: string }>(
      "select operation from holdfast.resource_changes where resource_id = $1 order by resource_version",
      [id],
    )
    .then((rows) => rows.map(({ operation }) => operation));

test("S8: what is published becomes due with its transition, once for each source and destination", async (t) => {
  const kernel = await openKernel(t);
  const source = uuidv7();
  await assert.rejects(
    transition(kernel.db, scope, async (tx) => {
      const told = { session, ordinal: 1n, destination: "hook", payload: {} };
      await insertPublication(tx, { source: { kind: "activation", id: source }, ...told });
      throw new Error("rolled back");
    }),
    /rolled back/,
  );
  assert.deepEqual(await claim(kernel), []);
  const id = await publish(kernel, { source });
  assert.ok(id);
  assert.equal(await publish(kernel, { source }), null);
  assert.ok(await publish(kernel, { source, destination: "other" }));
  assert.equal((await claim(kernel)).length, 2);
  assert.deepEqual((await read(kernel, id)).payload, { reply: 1 });
  await assert.rejects(read(kernel, id, tenantB), is("not_found"));
});

test("S8: what is for the inbox is there with its row, and nobody delivers it", async (t) => {
  const kernel = await openKernel(t);
  const id = await publish(kernel, { destination: "inbox" });
  assert.ok(id);
  assert.deepEqual(await claim(kernel), []);
  const { state, tries } = await read(kernel, id);
  assert.deepEqual([state, tries], ["delivered", 0]);
  assert.deepEqual(await operations(kernel, id), ["delivery.created"]);
});

test("S8: a delivered publication is settled once, and nobody attends to it any more", async (t) => {
  const kernel = await openKernel(t);
  const id = await publish(kernel);
  assert.ok(id);
  const lease = await claimOne(kernel);
  assert.equal(await tryOnce(kernel, lease, delivered), "delivered");
  const { state, tries, lastError, lastStatus } = await read(kernel, id);
  assert.deepEqual([state, tries, lastError, lastStatus], ["delivered", 1, null, 204]);
  assert.deepEqual(await kernel.ask("select from holdfast.leases"), []);
  await assert.rejects(settlePublication(kernel.db, lease, delivered), is("fenced"));
  assert.deepEqual(await operations(kernel, id), ["delivery.created", "delivery.delivered"]);
});

test("S8: a failed delivery is tried again later, and a bounded number of times; then it is visibly dead", async (t) => {
  const kernel = await openKernel(t);
  const id = await publish(kernel);
  assert.ok(id);
  const first = await claimOne(kernel);
  assert.equal(await tryOnce(kernel, first, failed, { policy, random: () => 0 }), "pending");
  const [row] = await kernel.ask<{ in_seconds: number }>(
    "select extract(epoch from wake_at - clock_timestamp())::float8 as in_seconds from holdfast.leases",
  );
  assert.ok(row && row.in_seconds > 25 && row.in_seconds <= 30, `due in ${row?.in_seconds} s`);
  assert.deepEqual(await claim(kernel), []);
  await makeAllDue(kernel);
  const second = await claimOne(kernel);
  assert.equal(await tryOnce(kernel, second, failed, { policy }), "dead");
  const { state, tries, lastError, lastStatus } = await read(kernel, id);
  assert.deepEqual([state, tries, lastError, lastStatus], ["dead", 2, failed.error, 503]);
  assert.deepEqual(await kernel.ask("select from holdfast.leases"), []);
  const told = ["delivery.created", "delivery.failed", "delivery.dead"];
  assert.deepEqual(await operations(kernel, id), told);
});

test("S8: tries that end their process are counted, and the last of them too", async (t) => {
  const kernel = await openKernel(t);
  const id = await publish(kernel);
  assert.ok(id);
  for (let tries = 1; tries <= policy.triesMax; tries += 1) {
    assert.equal(await begin(kernel, await claimOne(kernel), { policy }), "begun");
    assert.equal((await read(kernel, id)).tries, tries);
    await makeAllDue(kernel);
  }
  assert.equal(await begin(kernel, await claimOne(kernel), { policy }), "dead");
  const { state, lastError } = await read(kernel, id);
  assert.deepEqual([state, lastError], ["dead", "The last try began, and its process ended before it did."]);
});

test("S8: of a session's publications for one destination the first one alone is due, until it is delivered or dead", async (t) => {
  const kernel = await openKernel(t);
  const one = await publish(kernel);
  const two = await publish(kernel);
  const three = await publish(kernel);
  const elsewhere = await publish(kernel, { destination: "other" });
  const [a, b, ...more] = await claim(kernel);
  assert.ok(a && b);
  assert.equal(more.length, 0);
  assert.deepEqual(new Set([a.resource, b.resource]), new Set([one, elsewhere]));
  const head = a.resource === one ? a : b;
  await tryOnce(kernel, head, delivered);
  const next = await claimOne(kernel);
  assert.equal(next.resource, two);
  await tryOnce(kernel, next, { ...failed, final: true });
  assert.equal((await claimOne(kernel)).resource, three, "a dead one does not hold up the others");
});

test("S8: a publication is due whether the one before it is settled just before or just after it is written", async (t) => {
  const kernel = await openKernel(t);
  for (let round = 0; round < 10; round += 1) {
    await publish(kernel);
    const lease = await claimOne(kernel);
    await begin(kernel, lease);
    const [next] = await Promise.all([publish(kernel), settlePublication(kernel.db, lease, delivered)]);
    const after = await claimOne(kernel);
    assert.equal(after.resource, next);
    await tryOnce(kernel, after, delivered);
  }
});

test("S8: a dead publication is delivered again, and only a dead one", async (t) => {
  const kernel = await openKernel(t);
  const id = await publish(kernel);
  assert.ok(id);
  await assert.rejects(redeliver(kernel, id), is("conflict"));
  await tryOnce(kernel, await claimOne(kernel), { ...failed, final: true });
  await assert.rejects(redeliver(kernel, id, tenantB), is("not_found"));
  await redeliver(kernel, id);
  const again = await claimOne(kernel);
  assert.equal(again.resource, id);
  assert.equal(await tryOnce(kernel, again, delivered), "delivered");
});

test("S8: one that is redelivered goes before what waits in its line, and after what is being delivered", async (t) => {
  const kernel = await openKernel(t);
  const dead = await publish(kernel);
  const later = await publish(kernel);
  assert.ok(dead && later);
  await tryOnce(kernel, await claimOne(kernel), { ...failed, final: true });
  const delivering = await claimOne(kernel);
  assert.equal(delivering.resource, later);
  await begin(kernel, delivering);
  await redeliver(kernel, dead);
  assert.deepEqual(await claim(kernel), [], "the later one is being delivered");
  await settlePublication(kernel.db, delivering, failed);
  await makeAllDue(kernel);
  await tryOnce(kernel, await claimOne(kernel), delivered);
  const first = await claimOne(kernel);
  assert.equal(first.resource, dead);
  await tryOnce(kernel, first, { ...failed, final: true });

  const waiting = await publish(kernel);
  assert.ok(waiting);
  await tryOnce(kernel, await claimOne(kernel), failed);
  await redeliver(kernel, dead);
  const now = await claimOne(kernel);
  assert.equal(now.resource, dead, "the later one waits for its next try");
  await tryOnce(kernel, now, delivered);
  assert.equal((await claimOne(kernel)).resource, waiting);
});

test("E6: a publisher whose lease was taken over settles nothing", async (t) => {
  const kernel = await openKernel(t);
  const id = await publish(kernel);
  assert.ok(id);
  const zombie = await claimOne(kernel);
  await kernel.ask("update holdfast.leases set wake_at = clock_timestamp()");
  await claimOne(kernel);
  await assert.rejects(begin(kernel, zombie), is("fenced"));
  await assert.rejects(settlePublication(kernel.db, zombie, delivered), is("fenced"));
  assert.equal((await read(kernel, id)).state, "pending");
});

test("E16: a claim passes over tenants that have enough", async (t) => {
  const kernel = await openKernel(t);
  await publish(kernel);
  const holder = brandId<IncarnationId>(uuidv7());
  const full = { holder, limit: 10, quota: 10, full: [tenantA] };
  assert.deepEqual(await claimPublications(kernel.db, full), []);
  assert.equal((await claimPublications(kernel.db, { ...full, full: [tenantB] })).length, 1);
});
