import assert from "node:assert/strict";
import { test } from "node:test";
import { appendAlone } from "../../test/support/changes.ts";
import { withClient } from "../../test/support/database.ts";
import { type Kernel, openKernel, tenantA, tenantB } from "../../test/support/kernel.ts";
import { until } from "../../test/support/until.ts";
import { readChanges } from "./change.store.ts";
import { uuidv7 } from "./ids.ts";
import { startLookout } from "./lookout.ts";
import { stampAll } from "./sequencer.ts";
import { type ChangePosition, startChangeReader } from "./watch.ts";

async function reading(
  kernel: Kernel,
  onError: (error: unknown) => void = (error) => assert.fail(String(error)),
) {
  const lookout = startLookout({
    db: kernel.db,
    doorbell: { onRing: () => () => undefined },
    kinds: [],
    intervalMs: 20,
    onError: (error) => assert.fail(String(error)),
  });
  const reader = await startChangeReader({ db: kernel.db, lookout, batch: 3, onError });
  kernel.after(async () => {
    await reader.stop();
    await lookout.stop();
  });
  return reader;
}

async function changeAll(
  kernel: Kernel,
  changes: readonly Parameters<typeof appendAlone>[1][],
): Promise<void> {
  for (const change of changes) await appendAlone(kernel, change);
  await stampAll(kernel.db, 500);
}

const everything = { kinds: [], root: null };
const patience = () => AbortSignal.timeout(20_000);

test("S14: every subscriber gets the positions of its tenant or root, in order, each once, over many batches", async (t) => {
  const kernel = await openKernel(t);
  await changeAll(kernel, [{}, {}]);
  const reader = await reading(kernel);
  assert.equal(reader.position(), 2n);
  const root = uuidv7();
  const [all, other, ofRoot]: [ChangePosition[], ChangePosition[], ChangePosition[]] = [[], [], []];
  reader.subscribe({ tenant: tenantA }, (positions) => all.push(...positions));
  reader.subscribe({ tenant: tenantB, root: null }, (positions) => other.push(...positions));
  reader.subscribe({ tenant: tenantA, root }, (positions) => ofRoot.push(...positions));
  await changeAll(kernel, [
    { resource: root, version: 1n },
    { tenant: tenantB },
    {},
    {},
    { resource: root, version: 2n },
    { tenant: tenantB, resource: root },
    {},
  ]);
  await until("everything is read", () => reader.position() === 9n);
  assert.deepEqual(
    all.map((change) => change.position),
    [3n, 5n, 6n, 7n, 9n],
  );
  assert.deepEqual(
    other.map((change) => change.position),
    [4n, 8n],
  );
  assert.deepEqual(ofRoot, [
    { position: 3n, tenant: tenantA, kind: "job", root },
    { position: 7n, tenant: tenantA, kind: "job", root },
  ]);
});

test("S14: nothing comes after unsubscribing, and a subscriber that throws takes nothing from the others", async (t) => {
  const kernel = await openKernel(t);
  const errors: unknown[] = [];
  const reader = await reading(kernel, (error) => errors.push(error));
  let [calls, heard] = [0, 0];
  const end = reader.subscribe({ tenant: tenantA }, () => {
    calls += 1;
    throw new Error("a careless subscriber");
  });
  reader.subscribe({ tenant: tenantA }, (positions) => {
    heard += positions.length;
  });
  await changeAll(kernel, [{}]);
  await until("the first is read", () => heard === 1);
  end();
  await changeAll(kernel, [{}]);
  await until("the second is read", () => heard === 2);
  assert.equal(calls, 1);
  assert.equal(errors.length, 1);
});

test("S14: waiting for a root ends with its next change, or with the signal", async (t) => {
  const kernel = await openKernel(t);
  const reader = await reading(kernel);
  const root = uuidv7();
  const waiting = reader.waitFor(tenantA, root, patience());
  await changeAll(kernel, [{}, { tenant: tenantB, resource: root }, { resource: root }]);
  assert.deepEqual(await waiting, { position: 3n, tenant: tenantA, kind: "job", root });
  const controller = new AbortController();
  const aborted = assert.rejects(reader.waitFor(tenantA, root, controller.signal), /enough/);
  controller.abort(new Error("enough"));
  await aborted;
});

test("S14: a read that fails is tried again, and nothing is skipped", async (t) => {
  const kernel = await openKernel(t);
  let failures = 0;
  const reader = await reading(kernel, () => {
    failures += 1;
  });
  const heard: bigint[] = [];
  reader.subscribe({ tenant: tenantA }, (positions) =>
    heard.push(...positions.map((change) => change.position)),
  );
  await kernel.ask("revoke select (kind) on holdfast.resource_changes from holdfast_dispatcher");
  await changeAll(kernel, [{}, {}]);
  await until("the read fails", () => failures > 0);
  await kernel.ask("grant select (kind) on holdfast.resource_changes to holdfast_dispatcher");
  await until("it is read after all", () => heard.length === 2);
  assert.deepEqual(heard, [1n, 2n]);
});

test("S9/S14: bodies are read per tenant, after one position and up to another, by kind and root", async (t) => {
  const kernel = await openKernel(t);
  const root = uuidv7();
  await changeAll(kernel, [
    { body: { name: "first" } },
    { tenant: tenantB, body: { secret: true } },
    { kind: "attempt", resource: root },
    { resource: root, version: 7n },
  ]);
  await appendAlone(kernel);
  const positions = async (range: Partial<Parameters<typeof readChanges>[2]>, tenant = tenantA) =>
    (
      await readChanges(kernel.db, tenant, { ...everything, after: 0n, upto: 100n, limit: 100, ...range })
    ).map((change) => change.position);
  assert.deepEqual(await positions({}), [1n, 3n, 4n]);
  assert.deepEqual(await positions({}, tenantB), [2n]);
  assert.deepEqual(await positions({ after: 1n, upto: 3n }), [3n]);
  assert.deepEqual(await positions({ limit: 2 }), [1n, 3n]);
  assert.deepEqual(await positions({ kinds: ["job"] }), [1n, 4n]);
  assert.deepEqual(await positions({ root }), [3n, 4n]);
  const [first] = await readChanges(kernel.db, tenantA, { ...everything, after: 0n, upto: 1n, limit: 1 });
  assert.deepEqual(first?.body, { name: "first" });
});

test("S9: the role that reads positions of all tenants can't read a body or a version", async (t) => {
  const kernel = await openKernel(t);
  await withClient(kernel.settings, async (client) => {
    await client.query("set role holdfast_dispatcher");
    for (const column of ["body", "resource_version", "operation", "resource_id"]) {
      await assert.rejects(client.query(`select ${column} from holdfast.resource_changes`), {
        code: "42501",
      });
    }
  });
});
