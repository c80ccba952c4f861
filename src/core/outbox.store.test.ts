import assert from "node:assert/strict";
import { test } from "node:test";
import { type Kernel, openKernel, tenantA, tenantB } from "../../test/support/kernel.ts";
import { isHoldfastError } from "./errors.ts";
import { brandId, type IncarnationId, uuidv7 } from "./ids.ts";
import {
  claimPublications,
  insertPublication,
  readPublication,
  redeliverPublication,
  settlePublication,
} from "./outbox.store.ts";
import type { RetryPolicy } from "./outbox.ts";
import { transition } from "./postgres/transition.ts";
import { seconds } from "./time.ts";

const scope = { role: "controller", tenant: tenantA, name: "finish" } as const;
const policy: RetryPolicy = { first: seconds(60), max: seconds(600), triesMax: 2 };

const publish = (kernel: Kernel, source = uuidv7(), destination = "inbox") =>
  transition(kernel.db, scope, (tx) =>
    insertPublication(tx, { source: { kind: "activation", id: source }, destination, payload: { reply: 1 } }),
  );

const claim = (kernel: Kernel) =>
  claimPublications(kernel.db, { holder: brandId<IncarnationId>(uuidv7()), limit: 10, quota: 10 });

async function claimOne(kernel: Kernel) {
  const [lease, ...more] = await claim(kernel);
  assert.ok(lease);
  assert.equal(more.length, 0);
  return lease;
}

const makeAllDue = (kernel: Kernel) =>
  kernel.ask(
    "update holdfast.leases set holder = null, due_at = clock_timestamp(), wake_at = clock_timestamp()".replaceAll(
      "clock_timestamp()",
      "now()",
    ),
  );

test("S8: what is published becomes due with its transition, once for each source and destination", async (t) => {
  const kernel = await openKernel(t);
  const source = uuidv7();
  await assert.rejects(
    transition(kernel.db, scope, async (tx) => {
      await insertPublication(tx, {
        source: { kind: "activation", id: source },
        destination: "inbox",
        payload: {},
      });
      throw new Error("rolled back");
    }),
    /rolled back/,
  );
  assert.deepEqual(await claim(kernel), []);
  const id = await publish(kernel, source);
  assert.ok(id);
  assert.equal(await publish(kernel, source), null);
  assert.ok(await publish(kernel, source, "https://example.test/hook"));
  const leases = await claim(kernel);
  assert.equal(leases.length, 2);
  assert.deepEqual((await readPublication(kernel.db, tenantA, id))?.payload, { reply: 1 });
  assert.equal(await readPublication(kernel.db, tenantB, id), undefined);
});

test("S8: a delivered publication is settled once, and nobody attends to it any more", async (t) => {
  const kernel = await openKernel(t);
  const id = await publish(kernel);
  assert.ok(id);
  const lease = await claimOne(kernel);
  assert.equal(await settlePublication(kernel.db, lease, { delivered: true }), "delivered");
  const publication = await readPublication(kernel.db, tenantA, id);
  assert.deepEqual([publication?.state, publication?.tries, publication?.lastError], ["delivered", 1, null]);
  assert.deepEqual(await kernel.ask("select from holdfast.leases"), []);
  await assert.rejects(settlePublication(kernel.db, lease, { delivered: true }), (error) =>
    isHoldfastError(error, "fenced"),
  );
});

test("S8: a failed delivery is tried again later, and a bounded number of times; then it is visibly dead", async (t) => {
  const kernel = await openKernel(t);
  const id = await publish(kernel);
  assert.ok(id);
  const first = await claimOne(kernel);
  const failed = { delivered: false, error: "503 from the destination" } as const;
  assert.equal(await settlePublication(kernel.db, first, failed, { policy, random: () => 0 }), "pending");
  const [row] = await kernel.ask<{ in_seconds: number }>(
    "select extract(epoch from wake_at - clock_timestamp())::float8 as in_seconds from holdfast.leases",
  );
  assert.ok(row && row.in_seconds > 25 && row.in_seconds <= 30, `due in ${row?.in_seconds} s`);
  assert.deepEqual(await claim(kernel), []);
  await makeAllDue(kernel);
  const second = await claimOne(kernel);
  assert.equal(await settlePublication(kernel.db, second, failed, { policy }), "dead");
  const publication = await readPublication(kernel.db, tenantA, id);
  assert.deepEqual(
    [publication?.state, publication?.tries, publication?.lastError],
    ["dead", 2, failed.error],
  );
  assert.deepEqual(await kernel.ask("select from holdfast.leases"), []);
});

test("S8: an operator has a dead publication delivered again, and only a dead one", async (t) => {
  const kernel = await openKernel(t);
  const id = await publish(kernel);
  assert.ok(id);
  const conflict = (error: unknown) => isHoldfastError(error, "conflict");
  await assert.rejects(redeliverPublication(kernel.db, tenantA, id), conflict);
  const lease = await claimOne(kernel);
  await settlePublication(
    kernel.db,
    lease,
    { delivered: false, error: "no" },
    { policy: { ...policy, triesMax: 1 } },
  );
  await assert.rejects(redeliverPublication(kernel.db, tenantB, id), conflict);
  await redeliverPublication(kernel.db, tenantA, id);
  const again = await claimOne(kernel);
  assert.equal(again.resource, id);
  assert.equal(await settlePublication(kernel.db, again, { delivered: true }), "delivered");
});

test("E6: a publisher whose lease was taken over settles nothing", async (t) => {
  const kernel = await openKernel(t);
  const id = await publish(kernel);
  assert.ok(id);
  const zombie = await claimOne(kernel);
  await kernel.ask("update holdfast.leases set wake_at = clock_timestamp()");
  await claimOne(kernel);
  await assert.rejects(settlePublication(kernel.db, zombie, { delivered: true }), (error) =>
    isHoldfastError(error, "fenced"),
  );
  assert.equal((await readPublication(kernel.db, tenantA, id))?.state, "pending");
});
