import assert from "node:assert/strict";
import { after, test } from "node:test";
import { append } from "../../test/support/changes.ts";
import { openKernel, tenantA, tenantB } from "../../test/support/kernel.ts";
import { until } from "../../test/support/until.ts";
import { type Database, transition } from "../core/postgres/transition.ts";
import { stampAll } from "../core/sequencer.ts";
import type { ChangePosition } from "../core/watch.ts";
import { openFeeds } from "./feed.ts";

const kernel = await openKernel({ after });

/** A reader that hands on when the test says so. */
function handReader() {
  const listeners = new Map<string, (positions: readonly ChangePosition[]) => void>();
  let head = 0n;
  return {
    subscribed: () => [...listeners.keys()],
    position: () => head,
    subscribe(
      interest: { readonly tenant: string },
      listener: (positions: readonly ChangePosition[]) => void,
    ) {
      listeners.set(interest.tenant, listener);
      return () => void listeners.delete(interest.tenant);
    },
    handOn(from: bigint, to: bigint) {
      head = to;
      const positions = Array.from({ length: Number(to - from) }, (_, n) => ({
        position: from + BigInt(n) + 1n,
        tenant: tenantA,
        kind: "job",
        root: "",
      }));
      listeners.get(tenantA)?.(positions);
    },
  };
}

test("G7: however many streams a tenant has, a batch is read once, and nothing without streams", async () => {
  let reads = 0;
  const db: Database = {
    ...kernel.db,
    pools: {
      ...kernel.db.pools,
      of(role) {
        reads += 1;
        return kernel.db.pools.of(role);
      },
    },
  };
  const reader = handReader();
  const feeds = openFeeds({
    db,
    reader,
    batch: 100,
    retryMs: 10,
    onError: (error) => assert.fail(String(error)),
  });
  const seen = Array.from({ length: 50 }, () => [] as bigint[]);
  const streams = seen.map((positions) =>
    feeds.join(tenantA, (changes) => positions.push(...changes.map(({ position }) => position))),
  );
  const quiet = feeds.join(tenantB, () => assert.fail());
  await transition(kernel.db, { role: "gateway", tenant: tenantA, name: "append" }, async (tx) => {
    for (let n = 0; n < 5; n += 1) await append(tx);
  });
  await stampAll(kernel.db, 100);
  reader.handOn(0n, 5n);
  assert.equal(streams[0]?.settled(), null);
  await until("all have seen all", () => seen.every(({ length }) => length === 5));
  assert.deepEqual(seen[49], [1n, 2n, 3n, 4n, 5n]);
  assert.equal(reads, 1);
  assert.equal(streams[0]?.settled(), 5n);
  for (const stream of [...streams, quiet]) stream.leave();
  assert.deepEqual(reader.subscribed(), []);
});

test("G7: a read that fails is made again, and nothing is passed over", async () => {
  let failures = 2;
  const db: Database = {
    ...kernel.db,
    pools: {
      ...kernel.db.pools,
      of(role) {
        failures -= 1;
        if (failures >= 0) throw new Error("no connection");
        return kernel.db.pools.of(role);
      },
    },
  };
  const reader = handReader();
  const errors: unknown[] = [];
  const feeds = openFeeds({ db, reader, batch: 2, retryMs: 10, onError: (error) => errors.push(error) });
  const positions: bigint[] = [];
  const stream = feeds.join(tenantA, (changes) => positions.push(...changes.map(({ position }) => position)));
  reader.handOn(0n, 5n);
  await until("all were seen", () => positions.length === 5);
  assert.deepEqual(positions, [1n, 2n, 3n, 4n, 5n]);
  assert.equal(errors.length, 2);
  stream.leave();
});
