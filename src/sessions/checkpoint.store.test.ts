import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertInvariants } from "../../test/support/invariants.ts";
import { tenantA, tenantB } from "../../test/support/kernel.ts";
import { openTurns, someBundle } from "../../test/support/turns.ts";
import { isHoldfastError } from "../core/errors.ts";
import { brandId, type IncarnationId, uuidv7 } from "../core/ids.ts";
import type { HeldLease } from "../core/lease.ts";
import { transition } from "../core/postgres/transition.ts";
import { stampAll } from "../core/sequencer.ts";
import { cancelActivation } from "./activation.store.ts";
import { commitCheckpoint } from "./checkpoint.store.ts";

const turns = await openTurns({ after });
const { db, kernel } = turns;

/** A session whose activation is about to commit. */
async function aboutToCommit(content: typeof someBundle | null = someBundle) {
  const session = await turns.session();
  const activation = await turns.admit(session);
  const lease = await turns.claim(session);
  const view = await turns.driveTo(lease, "commit", { content });
  const uid = await turns.uidOf(session, activation);
  const commit = { uid, expectedHead: view.head, destinations: [] as string[] };
  return { session, activation, lease, uid, commit };
}

const codes = (settled: readonly PromiseSettledResult<unknown>[]) =>
  settled
    .map((result) =>
      result.status === "fulfilled"
        ? "committed"
        : isHoldfastError(result.reason)
          ? result.reason.code
          : String(result.reason),
    )
    .sort();

const facts = async (session: string) => {
  const [row] = await kernel.ask<Record<string, number>>(
    `select (select head_revision::int from holdfast.cloud_sessions where session_id = $1) as head,
       (select count(*)::int from holdfast.bundle_revisions where session_id = $1) as revisions,
       (select count(*)::int from holdfast.checkpoints where session_id = $1) as checkpoints,
       (select count(*)::int from holdfast.activations where session_id = $1 and state = 'committed') as outcomes,
       (select count(*)::int from holdfast.publication_outbox where session_id = $1) as replies`,
    [session],
  );
  return row;
};
const once = { head: 1, revisions: 1, checkpoints: 1, outcomes: 1, replies: 1 };
const never = { head: 0, revisions: 0, checkpoints: 0, outcomes: 0, replies: 0 };

test("S7: a commit inserts the next revision, moves the head, records the outcome and the reply, all or none", async () => {
  const { session, lease, commit, uid } = await aboutToCommit();
  assert.deepEqual(await facts(session), never);
  assert.equal(await commitCheckpoint(db, lease, { ...commit, destinations: ["hook"] }), 1n);
  assert.deepEqual(await facts(session), once);
  const [revision] = await kernel.ask(
    "select revision::int, sha256, bytes::int from holdfast.bundle_revisions where session_id = $1",
    [session],
  );
  assert.deepEqual(revision, { revision: 1, sha256: someBundle.sha256, bytes: 3 });
  const published = await kernel.ask<{ destination: string; reply: unknown }>(
    "select destination, payload -> 'reply' as reply from holdfast.publication_outbox where source_id = $1",
    [uid],
  );
  assert.deepEqual(published, [{ destination: "hook", reply: { ok: true } }]);
});

test("S7: the same commit again under the same lease gives the same revision and writes nothing", async () => {
  const { session, lease, commit } = await aboutToCommit();
  await commitCheckpoint(db, lease, commit);
  const before = await turns.digest();
  assert.equal(await commitCheckpoint(db, lease, commit), 1n);
  assert.equal(await turns.digest(), before);
  assert.deepEqual(await facts(session), once);
});

for (const count of [2, 3, 4, 8, 16]) {
  test(`S7 S4: of ${count} commits that compete for one head exactly one moves it`, async () => {
    const { session, lease, commit } = await aboutToCommit();
    // Half of them hold what was the lease once: each epoch commits with its own, and only the last is one.
    const leases: HeldLease[] = [lease];
    while (leases.length < Math.max(2, count / 2)) leases.push(await turns.takeOver(lease));
    const tries = Array.from({ length: count }, (_, index) => leases[index % leases.length] ?? lease);
    const settled = await Promise.allSettled(tries.map((holder) => commitCheckpoint(db, holder, commit)));
    const mine = tries.filter((holder) => holder === leases.at(-1)).length;
    const expected = [...Array(mine).fill("committed"), ...Array(count - mine).fill("fenced")];
    assert.deepEqual(codes(settled), expected);
    assert.deepEqual(await facts(session), once);
  });
}

test("S7: of sixteen holders at once none but the present one commits, wherever they wait for each other", async () => {
  const { session, lease, commit } = await aboutToCommit();
  const strangers = Array.from({ length: 15 }, (_, index) => ({
    ...lease,
    epoch: lease.epoch - BigInt(index % 2),
    holder: brandId<IncarnationId>(uuidv7()),
  }));
  const settled = await Promise.allSettled(
    [...strangers, lease].map((holder) => commitCheckpoint(db, holder, commit)),
  );
  assert.deepEqual(codes(settled), ["committed", ...Array(15).fill("fenced")]);
  assert.deepEqual(await facts(session), once);
});

test("S5 S7: a stale head, a stale epoch, another activation and another tenant change nothing", async () => {
  const { session, lease, commit } = await aboutToCommit();
  const other = await aboutToCommit();
  const waiting = await turns.uidOf(session, await turns.admit(session));
  const before = await turns.digest();
  const refused = async (code: string, by: HeldLease, what: Partial<typeof commit>) => {
    await assert.rejects(commitCheckpoint(db, by, { ...commit, ...what }), (error) =>
      isHoldfastError(error, code as "conflict"),
    );
    assert.equal(await turns.digest(), before);
  };
  await refused("conflict", lease, { expectedHead: 1n });
  await refused("conflict", lease, { expectedHead: -1n });
  await refused("conflict", lease, { uid: other.uid });
  await refused("conflict", lease, { uid: waiting });
  await refused("conflict", lease, { uid: uuidv7() });
  await refused("fenced", { ...lease, epoch: lease.epoch - 1n }, {});
  await refused("fenced", { ...lease, epoch: lease.epoch + 1n }, {});
  await refused("fenced", { ...lease, holder: other.lease.holder }, {});
  await refused("fenced", { ...lease, tenant: tenantB }, {});
  await refused("fenced", { ...lease, resource: other.session }, {});
  await kernel.ask(
    "update holdfast.leases set wake_at = holdfast.ledger_now() where kind = 'session' and resource_id = $1",
    [session],
  );
  const expired = await turns.digest();
  await assert.rejects(commitCheckpoint(db, lease, commit), (error) => isHoldfastError(error, "fenced"));
  assert.equal(await turns.digest(), expired);
});

test("G8: a cancellation that came first wins over the commit; after the commit it is refused", async () => {
  const cancel = (session: string, activation: string) =>
    transition(db, { role: "gateway", tenant: tenantA, name: "cancel" }, (tx) =>
      cancelActivation(tx, { session, activation, reason: "not needed" }),
    );
  const first = await aboutToCommit();
  await cancel(first.session, first.activation);
  await assert.rejects(commitCheckpoint(db, first.lease, first.commit), (error) =>
    isHoldfastError(error, "conflict"),
  );
  assert.deepEqual(await facts(first.session), never);
  assert.equal((await turns.step(first.lease)).do, "cancel");

  const second = await aboutToCommit();
  await commitCheckpoint(db, second.lease, second.commit);
  await assert.rejects(cancel(second.session, second.activation), (error) =>
    isHoldfastError(error, "conflict"),
  );

  // Both at once: one of them, never both.
  for (let round = 0; round < 8; round += 1) {
    const { session, activation, lease, commit } = await aboutToCommit();
    const settled = await Promise.allSettled([
      cancel(session, activation),
      commitCheckpoint(db, lease, commit),
    ]);
    assert.deepEqual(codes(settled), ["committed", "conflict"]);
    const committed = settled[1]?.status === "fulfilled";
    assert.deepEqual(await facts(session), committed ? once : never);
  }
});

test("S13: nothing that is not verified is committed, and a turn without a change has the bundle of the head", async () => {
  const session = await turns.session();
  const activation = await turns.admit(session);
  const lease = await turns.claim(session);
  await turns.driveTo(lease, "verify");
  const uid = await turns.uidOf(session, activation);
  const commit = { uid, expectedHead: 0n, destinations: [] };
  await assert.rejects(commitCheckpoint(db, lease, commit), (error) => isHoldfastError(error, "conflict"));
  assert.deepEqual(await facts(session), never);
  await turns.driveTo(lease, "rest");
  await turns.admit(session);
  await turns.driveTo(lease, "rest", { content: null });
  const revisions = await kernel.ask(
    "select revision::int, sha256 from holdfast.bundle_revisions where session_id = $1 order by revision",
    [session],
  );
  const { sha256 } = someBundle;
  assert.deepEqual(revisions, [
    { revision: 1, sha256 },
    { revision: 2, sha256 },
  ]);
});

test("S3: a revision never changes, is unique by session and number, and the head moves one at a time", async () => {
  const { session, lease, commit } = await aboutToCommit();
  await commitCheckpoint(db, lease, commit);
  const refused = (sql: string, code: string) =>
    assert.rejects(
      kernel.ask(sql, [session]),
      (error) => error instanceof Error && "code" in error && error.code === code,
    );
  await refused(
    "update holdfast.bundle_revisions set sha256 = repeat('b', 64) where session_id = $1",
    "HF002",
  );
  await refused("update holdfast.checkpoints set epoch = 0 where session_id = $1", "HF002");
  await refused("update holdfast.cloud_sessions set head_revision = 3 where session_id = $1", "HF009");
  await refused("update holdfast.cloud_sessions set head_revision = 0 where session_id = $1", "HF009");
  // The next one that isn't there: refused when the transaction ends.
  await refused("update holdfast.cloud_sessions set head_revision = 2 where session_id = $1", "23503");
  await refused(
    `insert into holdfast.bundle_revisions (tenant_id, session_id, revision)
     select tenant_id, session_id, 1 from holdfast.cloud_sessions where session_id = $1`,
    "HF009",
  );
  await refused("update holdfast.activations set revision = 2 where session_id = $1", "HF002");
});

test("the store holds all that is always true", async () => {
  // Nothing stamps positions here meanwhile.
  await stampAll(turns.db, 1000);
  await assertInvariants(kernel.database);
});
