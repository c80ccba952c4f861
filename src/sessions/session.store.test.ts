import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertInvariants } from "../../test/support/invariants.ts";
import { tenantA } from "../../test/support/kernel.ts";
import { openTurns } from "../../test/support/turns.ts";
import { HoldfastError, isHoldfastError } from "../core/errors.ts";
import type { HeldLease } from "../core/lease.ts";
import { type Transaction, transition, view } from "../core/postgres/transition.ts";
import { stampAll } from "../core/sequencer.ts";
import { deleteAgent, getAgentByName, patchAgent } from "./agent.store.ts";
import { rest } from "./run.store.ts";
import { createSession, deleteSession, getSession, patchSession } from "./session.store.ts";

const turns = await openTurns({ after });
const { db, kernel } = turns;
const gateway = { role: "gateway", tenant: tenantA, name: "test" } as const;
const change = <T>(body: (tx: Transaction) => Promise<T>) => transition(db, gateway, body);
const read = (session: string) => view(db, gateway, (tx) => getSession(tx, session));
const conflict = (error: unknown) => isHoldfastError(error, "conflict");
const leasesOf = (session: string) =>
  kernel.ask("select from holdfast.leases where kind = 'session' and resource_id = $1", [session]);

/** Does what is decided until the session rests, and lets it. */
async function settle(session: string, world: Parameters<typeof turns.driveTo>[2] = {}) {
  const lease = await turns.claim(session);
  await turns.driveTo(lease, "rest", world);
  await turns.step(lease);
}

test("G10 G12: a create followed at once by a patch converges on the patched spec, and then nothing is due any more", async () => {
  const agent = await turns.agent();
  const session = await turns.session(agent);
  const created = await read(session);
  assert.deepEqual(
    [created.generation, created.observed_generation, created.observed_state],
    [1n, 0n, "pending"],
  );
  await change(async (tx) => {
    const { agent_id } = await getAgentByName(tx, agent);
    await patchAgent(tx, { agent: agent_id, patch: { spec: { command: ["second"] } } });
  });
  await change((tx) => patchSession(tx, { session, patch: { version: 2 } }));
  await turns.admit(session);
  await settle(session);
  const row = await read(session);
  assert.deepEqual([row.generation, row.observed_generation, row.observed_state], [2n, 2n, "idle"]);
  const [sandbox] = await kernel.ask<{ command: string }>(
    "select spec -> 'command' ->> 0 as command from holdfast.sandbox_attempts where owner_kind = 'activation'",
  );
  assert.equal(sandbox?.command, "second");
  assert.equal((await leasesOf(session)).length, 0);
});

test("G12: what is observed late, of an older generation, changes nothing", async () => {
  const session = await turns.session();
  const lease = await turns.claim(session);
  const seen = await turns.look(lease);
  await change((tx) => patchSession(tx, { session, patch: { desired: "suspended" } }));
  assert.equal(await rest(db, lease, seen, { observed: "idle", until: null }), false);
  await turns.driveTo(lease, "rest");
  await turns.step(lease);
  assert.deepEqual((await read(session)).observed_state, "suspended");
  const older = kernel.ask(
    "update holdfast.cloud_sessions set observed_generation = 1, observed_state = 'idle' where session_id = $1",
    [session],
  );
  await assert.rejects(older, (error) => error instanceof Error && "code" in error && error.code === "HF002");
});

test("G4 S5: a patch with another version in mind changes nothing; the same again changes nothing either", async () => {
  const session = await turns.session();
  const stale = (tx: Transaction) =>
    patchSession(tx, {
      session,
      patch: { desired: "suspended" },
      precondition: (version) => {
        if (version !== 7n) throw new HoldfastError("precondition_failed", "another version");
      },
    });
  const before = await turns.digest();
  await assert.rejects(change(stale), (error) => isHoldfastError(error, "precondition_failed"));
  await change((tx) => patchSession(tx, { session, patch: { desired: "active", labels: { a: null } } }));
  assert.equal(await turns.digest(), before);
  const labelled = await change((tx) => patchSession(tx, { session, patch: { labels: { a: "b" } } }));
  assert.deepEqual([labelled.generation, labelled.resource_version], [1n, 2n]);
});

test("a suspended session lets activations wait, and goes on with them when it is active again", async () => {
  const session = await turns.session();
  await change((tx) => patchSession(tx, { session, patch: { desired: "suspended" } }));
  await turns.admit(session);
  await settle(session);
  assert.equal((await read(session)).observed_state, "suspended");
  assert.equal((await leasesOf(session)).length, 0);
  await change((tx) => patchSession(tx, { session, patch: { desired: "active" } }));
  await settle(session);
  const row = await read(session);
  assert.deepEqual([row.observed_state, row.head_revision], ["idle", 1n]);
});

test("G8: a deletion cancels what is at work, is never taken back, and absorbs what is observed later", async () => {
  const session = await turns.session();
  await turns.admit(session);
  await turns.admit(session);
  const lease = await turns.claim(session);
  await turns.driveTo(lease, "watch");
  await change((tx) => deleteSession(tx, { session, reason: "not needed" }));
  await turns.driveTo(lease, "rest");
  await turns.step(lease);
  const row = await read(session);
  assert.deepEqual([row.observed_state, row.deleted_at !== null, row.head_revision], ["deleted", true, 0n]);
  const states = await kernel.ask<{ state: string }>(
    "select state from holdfast.activations where session_id = $1",
    [session],
  );
  assert.deepEqual(
    states.map(({ state }) => state),
    ["cancelled", "cancelled"],
  );
  const before = await turns.digest();
  await assert.rejects(
    change((tx) => patchSession(tx, { session, patch: { desired: "active" } })),
    conflict,
  );
  await change((tx) => deleteSession(tx, { session, reason: "again" }));
  assert.equal(await turns.digest(), before);
});

test("a session that begins as a copy has the other's revision as its first, and goes on by itself", async () => {
  const agent = await turns.agent();
  const session = await turns.session(agent);
  await turns.admit(session);
  await settle(session);
  const copy = await change((tx) => createSession(tx, { agent, from: { session, revision: 1n } }));
  assert.equal(copy.head_revision, 1n);
  await turns.admit(copy.session_id);
  await settle(copy.session_id, { content: { bytes: 4n, sha256: "b".repeat(64) } });
  const heads = [await read(session), await read(copy.session_id)].map((row) => row.head_revision);
  assert.deepEqual(heads, [1n, 2n]);
  await assert.rejects(
    change((tx) => createSession(tx, { agent, from: { session, revision: 9n } })),
    (error) => isHoldfastError(error, "not_found"),
  );
});

test("an agent with a session is not deleted, and one that is has its name free again", async () => {
  const agent = await turns.agent("taken");
  const session = await turns.session(agent);
  const id = (await change((tx) => getAgentByName(tx, agent))).agent_id;
  await assert.rejects(
    change((tx) => deleteAgent(tx, { agent: id })),
    conflict,
  );
  await change((tx) => deleteSession(tx, { session, reason: "done" }));
  await settle(session);
  await change((tx) => deleteAgent(tx, { agent: id }));
  await assert.rejects(turns.session(agent), (error) => isHoldfastError(error, "not_found"));
  await turns.agent("taken");
});

test("of a tenant no more activations are at work at once than its bound; each end wakes the one that waited longest", async () => {
  const agent = await turns.agent();
  const world = { runsMax: 2 };
  const held: HeldLease[] = [];
  for (let n = 0; n < 4; n += 1) {
    const session = await turns.session(agent);
    await turns.admit(session);
    const lease = await turns.claim(session);
    held.push(lease);
    await turns.step(lease, world);
  }
  const [one, two, third, fourth] = held;
  assert.ok(one && two && third && fourth);
  const states = () =>
    kernel.ask<{ state: string }>(
      "select state from holdfast.activations where session_id = any ($1) order by array_position($1, session_id)",
      [held.map(({ resource }) => resource)],
    );
  assert.deepEqual(
    (await states()).map(({ state }) => state),
    ["running", "running", "queued", "queued"],
  );
  /** Of those that wait, which are due now; nobody asks for the others meanwhile. */
  const due = async () =>
    (
      await kernel.ask<{ resource_id: string }>(
        `select resource_id from holdfast.leases
         where kind = 'session' and resource_id = any ($1) and holder is null and wake_at <= holdfast.ledger_now()`,
        [[third.resource, fourth.resource]],
      )
    ).map(({ resource_id }) => resource_id);
  assert.deepEqual(await due(), []);
  await turns.driveTo(one, "fail", { ...world, lines: ["no json"] });
  await turns.step(one, world);
  assert.deepEqual(await due(), [third.resource]);
  // A checkpoint ends a run too, and wakes the next in its own transaction.
  await turns.driveTo(two, "commit", world);
  await turns.step(two, world);
  assert.deepEqual((await due()).toSorted(), [third.resource, fourth.resource].toSorted());
});

test("the store holds all that is always true", async () => {
  // Nothing stamps positions here meanwhile.
  await stampAll(turns.db, 1000);
  await assertInvariants(kernel.database);
});
