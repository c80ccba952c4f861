import assert from "node:assert/strict";
import { after, test } from "node:test";
import { isHoldfastError } from "../../src/core/errors.ts";
import { uuidv7 } from "../../src/core/ids.ts";
import type { HeldLease } from "../../src/core/lease.ts";
import { type Database, type Transaction, transition } from "../../src/core/postgres/transition.ts";
import { stampAll } from "../../src/core/sequencer.ts";
import { admitActivation, cancelActivation } from "../../src/sessions/activation.store.ts";
import { commitCheckpoint } from "../../src/sessions/checkpoint.store.ts";
import { moveActivation } from "../../src/sessions/run.store.ts";
import { deleteSession, grantPermission, patchSession } from "../../src/sessions/session.store.ts";
import { gatedDatabase } from "../support/gate.ts";
import { assertInvariants } from "../support/invariants.ts";
import { tenantA } from "../support/kernel.ts";
import { openTurns } from "../support/turns.ts";
import { until } from "../support/until.ts";

const turns = await openTurns({ after });
const { kernel } = turns;
const agent = await turns.agent();

interface Ready {
  readonly session: string;
  readonly activation: string;
  readonly uid: string;
  readonly lease: HeldLease;
}

const asGateway =
  (body: (tx: Transaction, ready: Ready) => Promise<unknown>) => (db: Database, ready: Ready) =>
    transition(db, { role: "gateway", tenant: tenantA, name: "race" }, (tx) => body(tx, ready));
const commitUnder = (db: Database, lease: HeldLease, uid: string) =>
  commitCheckpoint(db, lease, { uid, expectedHead: 0n, destinations: [] });

/** What can happen to a session whose activation is about to commit. */
const operations: Readonly<Record<string, (db: Database, ready: Ready) => Promise<unknown>>> = {
  "the same commit": (db, { lease, uid }) => commitUnder(db, lease, uid),
  "a commit under an older epoch": (db, { lease, uid }) =>
    commitUnder(db, { ...lease, epoch: lease.epoch - 1n }, uid),
  "a failure": (db, { lease, uid }) =>
    moveActivation(
      db,
      lease,
      { uid, state: "committing" },
      { to: "failed", failure: { code: "x", message: "y" } },
    ),
  "a cancellation": asGateway((tx, { session, activation }) =>
    cancelActivation(tx, { session, activation, reason: "not needed" }),
  ),
  "a deletion": asGateway((tx, { session }) => deleteSession(tx, { session, reason: "not needed" })),
  "a suspension": asGateway((tx, { session }) =>
    patchSession(tx, { session, patch: { desired: "suspended" } }),
  ),
  "a permission": asGateway((tx, { session }) => grantPermission(tx, { session, permission: "notes.write" })),
  "an admission": asGateway((tx, { session }) =>
    admitActivation(tx, { session, id: uuidv7(), stimulus: {}, queueMax: 10 }),
  ),
};
const commit = (db: Database, { lease, uid }: Ready) => commitUnder(db, lease, uid);

async function ready(): Promise<Ready> {
  const session = await turns.session(agent);
  const activation = await turns.admit(session);
  const lease = await turns.claim(session);
  await turns.driveTo(lease, "commit", { content: null });
  return { session, activation, uid: await turns.uidOf(session, activation), lease };
}

/** One runs up to its `at`th statement, then the other as far as it gets, then both to their ends. */
async function race(
  first: (db: Database, ready: Ready) => Promise<unknown>,
  second: (db: Database, ready: Ready) => Promise<unknown>,
  at: number,
): Promise<number> {
  const one = await ready();
  const gate = gatedDatabase(turns.db, at);
  const opened = first(gate.db, one);
  const over = Promise.allSettled([opened]);
  await Promise.race([gate.reached, over]);
  let done = false;
  const other = Promise.allSettled([second(turns.db, one)]).then((settled) => {
    done = true;
    return settled;
  });
  await until("it is over, or waits", async () => done || (await kernel.blocked()));
  gate.open();
  for (const [settled] of [await over, await other]) {
    if (settled.status === "fulfilled") continue;
    const refused = ["conflict", "fenced"].some((code) =>
      isHoldfastError(settled.reason, code as "conflict"),
    );
    assert.ok(refused, String(settled.reason));
  }
  const [facts] = await kernel.ask<Record<string, number>>(
    `select (select head_revision::int from holdfast.cloud_sessions where session_id = $1) as head,
       (select count(*)::int from holdfast.bundle_revisions where session_id = $1) as revisions,
       (select count(*)::int from holdfast.checkpoints where session_id = $1) as checkpoints,
       (select count(*)::int from holdfast.activations where activation_uid = $2 and state = 'committed') as outcomes,
       (select count(*)::int from holdfast.publication_outbox where source_id = $2) as replies`,
    [one.session, one.uid],
  );
  const { head } = facts ?? {};
  assert.ok(head === 0 || head === 1);
  assert.deepEqual(facts, { head, revisions: head, checkpoints: head, outcomes: head, replies: head });
  await turns.driveTo(one.lease, "rest", { content: null });
  return gate.sent();
}

const statementsMax = 40;
for (const [name, operation] of Object.entries(operations)) {
  test(`S7 G8: a commit and ${name}, the one begun before each statement of the other: all of it or nothing`, async (t) => {
    let count = 0;
    for (const [first, second] of [
      [commit, operation],
      [operation, commit],
    ] as const) {
      for (let at = 1, statements = statementsMax; at <= statements; at += 1) {
        statements = await race(first, second, at);
        count += 1;
      }
    }
    t.diagnostic(`${count} interleavings`);
  });
}

test("the store holds all that is always true, and nothing was a deadlock", async () => {
  // Nothing stamps positions here meanwhile.
  await stampAll(turns.db, 1000);
  await assertInvariants(kernel.database);
  const [row] = await kernel.ask<{ deadlocks: number }>(
    "select deadlocks::int from pg_stat_database where datname = current_database()",
  );
  assert.equal(row?.deadlocks, 0);
});
