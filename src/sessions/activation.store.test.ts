import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertInvariants } from "../../test/support/invariants.ts";
import { tenantA, tenantB } from "../../test/support/kernel.ts";
import { openTurns } from "../../test/support/turns.ts";
import { isHoldfastError } from "../core/errors.ts";
import { uuidv7 } from "../core/ids.ts";
import { transition } from "../core/postgres/transition.ts";
import { stampAll } from "../core/sequencer.ts";
import { admitActivation, cancelActivation, retryActivation } from "./activation.store.ts";
import { grantPermission, patchSession } from "./session.store.ts";

const turns = await openTurns({ after });
const { db, kernel } = turns;
const gateway = { role: "gateway", tenant: tenantA, name: "test" } as const;
const conflict = (error: unknown) => isHoldfastError(error, "conflict");

const admit = (session: string, id: string, text: string, queueMax = 1000) =>
  transition(db, gateway, (tx) => admitActivation(tx, { session, id, stimulus: { text }, queueMax }));
const cancel = (session: string, activation: string) =>
  transition(db, gateway, (tx) => cancelActivation(tx, { session, activation, reason: "not needed" }));
const admitted = async (session: string) => {
  const rows = await kernel.ask<{ activation_id: string; text: string; ordinal: number; state: string }>(
    `select activation_id, content ->> 'text' as text, ordinal::int, state from holdfast.activations
     where session_id = $1 order by ordinal`,
    [session],
  );
  return rows;
};

test("S2: sixteen admissions of one id at once are one activation, and one of them says that it is new", async () => {
  const session = await turns.session();
  const id = uuidv7();
  const all = await Promise.all(Array.from({ length: 16 }, () => admit(session, id, "same")));
  assert.equal(all.filter((one) => one.admitted).length, 1);
  assert.equal(new Set(all.map(({ activation }) => activation.activation_uid)).size, 1);
  assert.equal((await admitted(session)).length, 1);
});

test("S2: of admissions of one id with different content one content stands, and the others are a conflict", async () => {
  const session = await turns.session();
  const id = uuidv7();
  const texts = Array.from({ length: 12 }, (_, index) => `text ${index % 3}`);
  const settled = await Promise.allSettled(texts.map((text) => admit(session, id, text)));
  const [row, ...more] = await admitted(session);
  assert.equal(more.length, 0);
  for (const [index, result] of settled.entries()) {
    if (texts[index] === row?.text) assert.equal(result.status, "fulfilled");
    else assert.ok(result.status === "rejected" && conflict(result.reason));
  }
});

test("S2: the same again after the end gives what it came to, runs nothing, also when the session takes no more", async () => {
  const session = await turns.session();
  const id = uuidv7();
  await admit(session, id, "once");
  const lease = await turns.claim(session);
  await turns.driveTo(lease, "rest");
  await turns.step(lease);
  await transition(db, gateway, (tx) => patchSession(tx, { session, patch: { desired: "closed" } }));
  const before = await turns.digest();
  const { activation, admitted: isNew } = await admit(session, id, "once");
  assert.deepEqual([isNew, activation.state, activation.reply], [false, "committed", { ok: true }]);
  await assert.rejects(admit(session, id, "other"), conflict);
  await assert.rejects(admit(session, uuidv7(), "new"), conflict);
  assert.equal(await turns.digest(), before);
});

test("S2 S9: another session may have the same id, and another tenant sees none of it", async () => {
  const id = uuidv7();
  const [one, two] = [await turns.session(), await turns.session()];
  await admit(one, id, "one");
  assert.equal((await admit(two, id, "two")).admitted, true);
  await assert.rejects(
    transition(db, { ...gateway, tenant: tenantB }, (tx) =>
      admitActivation(tx, { session: one, id, stimulus: { text: "one" }, queueMax: 10 }),
    ),
    (error) => isHoldfastError(error, "not_found"),
  );
});

test("a session's line is bounded, and in the order of admission however many admit at once", async () => {
  const session = await turns.session();
  const settled = await Promise.allSettled(
    Array.from({ length: 12 }, (_, index) => admit(session, uuidv7(), String(index), 8)),
  );
  const full = settled.filter(
    (one) => one.status === "rejected" && isHoldfastError(one.reason, "queue_full"),
  );
  assert.equal(full.length, 4);
  const ordinals = (await admitted(session)).map(({ ordinal }) => ordinal);
  assert.deepEqual(ordinals, [1, 2, 3, 4, 5, 6, 7, 8]);
});

test("the database starts none before those that were admitted first, and one at a time", async () => {
  const session = await turns.session();
  const [first, second] = [await turns.admit(session), await turns.admit(session)];
  const uid = await turns.uidOf(session, second);
  const start = () =>
    kernel.ask(
      `update holdfast.activations set state = 'running', tries = 1, started_at = now(), base_revision = 0, agent_version = 1
       where activation_uid = $1`,
      [uid],
    );
  const refused = (error: unknown) => error instanceof Error && "code" in error && error.code === "HF008";
  await assert.rejects(start(), refused);
  const lease = await turns.claim(session);
  await turns.driveTo(lease, "watch");
  await assert.rejects(start(), refused);
  assert.equal((await turns.look(lease)).activation?.id, first);
});

test("G8: a cancellation is kept at once: what waits is cancelled, what runs is stopped, and late success is absorbed", async () => {
  const session = await turns.session();
  const [running, waiting] = [await turns.admit(session), await turns.admit(session)];
  const lease = await turns.claim(session);
  const { activation } = await turns.driveTo(lease, "watch");
  assert.equal((await cancel(session, waiting)).state, "cancelled");
  const asked = await cancel(session, running);
  assert.deepEqual([asked.state, asked.cancel_requested_at !== null], ["running", true]);
  const before = await turns.digest();
  await cancel(session, running);
  assert.equal(await turns.digest(), before);
  // Its sandbox had ended well before it could be asked to stop.
  const [sandbox] = activation?.sandboxes ?? [];
  assert.ok(sandbox);
  assert.equal((await turns.step(lease)).do, "stop");
  await turns.driveTo(lease, "rest");
  const states = (await admitted(session)).map(({ state }) => state);
  assert.deepEqual(states, ["cancelled", "cancelled"]);
});

test("a turn that waits for a permission runs again when exactly that is granted, or when somebody says so", async () => {
  const requiredAction = { type: "grant_permission", permission: "notes.write", reason: "to write" } as const;
  const asks = { content: null, outcome: { required_action: requiredAction } };
  const session = await turns.session();
  const id = await turns.admit(session);
  const lease = await turns.claim(session);
  await turns.driveTo(lease, "rest", asks);
  await turns.step(lease);
  const stateOf = async () => (await admitted(session))[0]?.state;
  const grant = (permission: string) =>
    transition(db, gateway, (tx) => grantPermission(tx, { session, permission }));
  assert.equal(await stateOf(), "waiting");
  await grant("notes.read");
  assert.equal(await stateOf(), "waiting");
  await grant("notes.write");
  assert.equal(await stateOf(), "queued");
  const again = await turns.claim(session);
  await turns.driveTo(again, "rest", asks);
  await transition(db, gateway, (tx) => retryActivation(tx, { session, activation: id }));
  assert.equal(await stateOf(), "queued");
  await assert.rejects(
    transition(db, gateway, (tx) => retryActivation(tx, { session, activation: id })),
    conflict,
  );
  await turns.driveTo(again, "rest");
  const [row] = await kernel.ask<{ state: string; tries: number; failures: number }>(
    "select state, tries, failures from holdfast.activations where session_id = $1",
    [session],
  );
  assert.deepEqual(row, { state: "committed", tries: 3, failures: 0 });
});

test("a run that failed leaves the head, counts, and the next one begins from there; the bounded last one fails", async () => {
  const agent = await turns.agent(undefined, { tries: 2 });
  const session = await turns.session(agent);
  await turns.admit(session);
  const lease = await turns.claim(session);
  await turns.driveTo(lease, "fail", { exitCode: 1 });
  await turns.step(lease);
  const [row] = await kernel.ask(
    `select a.state, a.tries, a.failures, a.failure_code, s.head_revision::int as head
     from holdfast.activations a join holdfast.cloud_sessions s using (tenant_id, session_id) where session_id = $1`,
    [session],
  );
  assert.deepEqual(row, { state: "failed", tries: 2, failures: 1, failure_code: "agent_failed", head: 0 });
});

test("S6: what an agent says as it goes is there once, in order, whoever reads it again", async () => {
  const session = await turns.session();
  await turns.admit(session);
  const lease = await turns.claim(session);
  const lines = Array.from({ length: 40 }, (_, index) =>
    JSON.stringify({ type: "event", name: "step", data: { index, odd: "é\u2028" } }),
  );
  await turns.driveTo(lease, "read", { lines });
  await Promise.all([turns.step(lease), turns.step(lease), turns.step(lease)]);
  await turns.driveTo(lease, "rest");
  const events = await kernel.ask<{ index: number; event: number }>(
    `select (body -> 'data' ->> 'index')::int as index, (body ->> 'event')::int as event
     from holdfast.resource_changes where root_id = $1 and operation = 'activation.event' order by change_id`,
    [session],
  );
  assert.deepEqual(
    events,
    lines.map((_, index) => ({ index, event: index + 1 })),
  );
});

test("an event that jsonb would blow up is kept as text, and what is not the protocol fails the turn with its reason", async () => {
  const session = await turns.session();
  await turns.admit(session);
  await turns.admit(session);
  const lease = await turns.claim(session);
  const list = Array.from({ length: 8_000 }, () => 1);
  const line = JSON.stringify({ type: "event", name: "large", data: { list } });
  await turns.driveTo(lease, "commit", { lines: [line] });
  await turns.step(lease);
  const [event] = await kernel.ask<{ type: string; data: string }>(
    `select jsonb_typeof(body -> 'data') as type, body ->> 'data' as data from holdfast.resource_changes
     where root_id = $1 and operation = 'activation.event'`,
    [session],
  );
  assert.deepEqual([event?.type, JSON.parse(event?.data ?? "")], ["string", { list }]);
  await turns.driveTo(lease, "rest", { lines: ["no json"] });
  const [, failed] = await kernel.ask<{ failure_code: string; failure_message: string }>(
    "select failure_code, failure_message from holdfast.activations where session_id = $1 order by ordinal",
    [session],
  );
  assert.equal(failed?.failure_code, "not_json");
  assert.match(failed?.failure_message ?? "", /^Line 2/);
});

test("the store holds all that is always true", async () => {
  // Nothing stamps positions here meanwhile.
  await stampAll(turns.db, 1000);
  await assertInvariants(kernel.database);
});
