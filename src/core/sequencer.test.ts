import assert from "node:assert/strict";
import { test } from "node:test";
import { append, appendAlone } from "../../test/support/changes.ts";
import { withClient } from "../../test/support/database.ts";
import { type Kernel, openKernel, tenantA, tenantB } from "../../test/support/kernel.ts";
import { until } from "../../test/support/until.ts";
import { readPositions } from "./change.sql.ts";
import { uuidv7 } from "./ids.ts";
import { startLookout } from "./lookout.ts";
import { openDoorbell } from "./postgres/doorbell.ts";
import { openPools } from "./postgres/pool.ts";
import { runAlone, transition } from "./postgres/transition.ts";
import { stampAll, startSequencer } from "./sequencer.ts";

interface Stamped {
  readonly position: string | null;
  readonly resource_id: string;
  readonly resource_version: string;
}

const log = (kernel: Kernel) =>
  kernel.ask<Stamped>(
    "select position, resource_id, resource_version from holdfast.resource_changes order by position nulls last",
  );

async function assertGapless(kernel: Kernel, count: number): Promise<readonly Stamped[]> {
  const changes = await log(kernel);
  assert.deepEqual(
    changes.map((change) => change.position),
    Array.from({ length: count }, (_, index) => String(index + 1)),
  );
  const [counter] = await kernel.ask<{ position: string }>("select position from holdfast.change_counter");
  assert.equal(counter?.position, String(count));
  return changes;
}

/** A process of its own that stamps. */
async function sequencing(kernel: Kernel, name: string) {
  const fail = (error: unknown) => assert.fail(String(error));
  const pools = openPools({ settings: kernel.settings, name });
  const doorbell = openDoorbell({ settings: kernel.settings, name, onError: fail });
  const db = { ...kernel.db, pools, committed: () => doorbell.ring() };
  const lookout = startLookout({ db, doorbell, kinds: [], intervalMs: 200, onError: fail });
  const sequencer = startSequencer({ db, lookout, batch: 7, onError: fail });
  kernel.after(async () => {
    await sequencer.stop();
    await lookout.stop();
    await doorbell.close();
    await pools.close();
  });
  return { db, lookout };
}

test("S14: a transaction that stays open for long delays no other change, and comes after them when it commits", async (t) => {
  const kernel = await openKernel(t);
  const slow = uuidv7();
  let finish = () => {};
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  let began = () => {};
  const open = new Promise<void>((resolve) => {
    began = resolve;
  });
  const committing = transition(kernel.db, { role: "gateway", tenant: tenantA, name: "slow" }, async (tx) => {
    await append(tx, { resource: slow });
    began();
    await finished;
  });
  await open;
  for (let change = 0; change < 3; change += 1) await appendAlone(kernel, { tenant: tenantB });
  assert.equal(await stampAll(kernel.db, 500), true);
  assert.deepEqual(
    (await log(kernel)).map((change) => change.position),
    ["1", "2", "3"],
  );
  finish();
  await committing;
  await stampAll(kernel.db, 500);
  const changes = await assertGapless(kernel, 4);
  assert.equal(changes.at(-1)?.resource_id, slow);
});

test("S6/S14: with many writers and two sequencers, a reader at a position has seen everything up to it, once, without gaps", async (t) => {
  const kernel = await openKernel(t);
  await Promise.all([sequencing(kernel, "one"), sequencing(kernel, "two")]);
  const writers = 16;
  const each = 15;
  const total = writers * each;
  const seen: bigint[] = [];
  let position = 0n;
  const reading = until("the reader has everything", async () => {
    const rows = await runAlone(kernel.db, "dispatcher", readPositions, { after: position, limit: 13n });
    for (const row of rows) seen.push(row.position);
    position = rows.at(-1)?.position ?? position;
    return seen.length >= total;
  });
  await Promise.all(
    Array.from({ length: writers }, async (_, writer) => {
      const resource = uuidv7();
      for (let version = 1; version <= each; version += 1) {
        await transition(kernel.db, { role: "gateway", tenant: tenantA, name: "write" }, async (tx) => {
          await append(tx, { resource, version: BigInt(version) });
          // Some stay open while others commit, so that the order of commits is not that of inserts.
          if ((writer + version) % 3 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
        });
      }
    }),
  );
  await reading;
  assert.deepEqual(
    seen,
    Array.from({ length: total }, (_, index) => BigInt(index + 1)),
  );
  const changes = await assertGapless(kernel, total);
  const versions = new Map<string, bigint>();
  for (const { resource_id: id, resource_version: version } of changes) {
    assert.equal(BigInt(version), (versions.get(id) ?? 0n) + 1n);
    versions.set(id, BigInt(version));
  }
});

test("S14: a sequencer that dies between stamping and committing loses nothing and leaves no gap", async (t) => {
  const kernel = await openKernel(t);
  for (let change = 0; change < 5; change += 1) await appendAlone(kernel);
  await stampAll(kernel.db, 2);
  for (let change = 0; change < 5; change += 1) await appendAlone(kernel);
  await withClient(kernel.settings, async (dying) => {
    await dying.query("set role holdfast_dispatcher");
    await dying.query("begin");
    const stamped = await dying.query(
      "select holdfast.stamp_changes(deployment_epoch, 3) as stamped, pg_backend_pid() as pid from holdfast.store",
    );
    const [row] = stamped.rows as { stamped: string; pid: number }[];
    assert.equal(row?.stamped, "3");
    assert.equal(await stampAll(kernel.db, 2), false, "only one stamps at a time");
    await kernel.ask("select pg_terminate_backend($1)", [row?.pid]);
  });
  await until("the lock is free", () => stampAll(kernel.db, 2));
  await assertGapless(kernel, 10);
});

test("S14: what commits while another process holds the sequencer's lock is stamped soon after", async (t) => {
  const kernel = await openKernel(t);
  await sequencing(kernel, "waiting");
  await withClient(kernel.settings, async (other) => {
    await other.query("begin");
    await other.query("select pg_advisory_xact_lock(7146290582)");
    await appendAlone(kernel);
    await other.query("commit");
  });
  await until("it is stamped", async () => (await log(kernel))[0]?.position === "1");
});

test("however fast changes come, they are stamped about fifty times a second, and all of them", async (t) => {
  const kernel = await openKernel(t);
  const { db, lookout } = await sequencing(kernel, "busy");
  const pool = db.pools.of("dispatcher");
  const query = pool.query.bind(pool) as (config: { readonly text: string }) => Promise<unknown>;
  let stamps = 0;
  Object.assign(pool, {
    query(config: { readonly text: string }) {
      if (config.text.includes("stamp_changes")) stamps += 1;
      return query(config);
    },
  });
  const started = performance.now();
  let changes = 0;
  while (performance.now() - started < 1_000) {
    await appendAlone(kernel);
    changes += 1;
    void lookout.now();
  }
  const elapsed = performance.now() - started;
  // A batch has seven here, so that one turn may stamp several times.
  assert.ok(stamps <= elapsed / 20 + changes / 7 + 2, `${stamps} stamps in ${elapsed} ms`);
  await until("all are stamped", async () => (await log(kernel)).every(({ position }) => position !== null));
  await assertGapless(kernel, changes);
});

test("the sequencer rings once for each batch that gave positions, and not for looking", async (t) => {
  const kernel = await openKernel(t);
  for (let change = 0; change < 10; change += 1) await appendAlone(kernel);
  const before = kernel.commits();
  await stampAll(kernel.db, 4);
  assert.equal(kernel.commits() - before, 3);
  await stampAll(kernel.db, 4);
  assert.equal(kernel.commits() - before, 3);
});
