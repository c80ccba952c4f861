import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertInvariants } from "../../test/support/invariants.ts";
import { cleanAll } from "../../test/support/session-life.ts";
import { openTurns, type World } from "../../test/support/turns.ts";
import { isHoldfastError } from "../core/errors.ts";
import { stampAll } from "../core/sequencer.ts";
import { decide } from "./activation.ts";
import { moveActivation, readSessionSnapshot, startRun } from "./run.store.ts";

const turns = await openTurns({ after });
const { db, kernel } = turns;
const fenced = (error: unknown) => isHoldfastError(error, "fenced");

const action = { type: "grant_permission", permission: "notes.write", reason: "to write" } as const;
const worlds: Readonly<Record<string, World>> = {
  "goes well": {},
  "changes nothing": { content: null },
  "asks for a permission": { content: null, outcome: { required_action: action } },
  "fails and is tried again": { exitCode: 1 },
  "says what is no protocol": { lines: ["no json"] },
};

for (const [what, world] of Object.entries(worlds)) {
  test(`E6 S4 S12: of a turn that ${what}, each step of a superseded controller changes nothing, and another does it`, async () => {
    const session = await turns.session();
    await turns.admit(session);
    let lease = await turns.claim(session);
    const done: string[] = [];
    for (let steps = 0; steps < 60; steps += 1) {
      const zombie = lease;
      lease = await turns.takeOver(zombie);
      assert.ok(lease.epoch > zombie.epoch);
      const step = decide(await turns.look(lease)).do;
      const before = await turns.digest();
      // What a sandbox reports in the middle of `release` is its own, not its controller's.
      await assert.rejects(turns.step(zombie, world), fenced, `${step} by a superseded controller`);
      assert.equal(await turns.digest(), before, step);
      await turns.step(lease, world);
      done.push(step);
      if (step === "rest") break;
    }
    assert.equal(done.at(-1), "rest");
    assert.equal(done.filter((step) => step === "start").length, what === "fails and is tried again" ? 3 : 1);
  });
}

test("a step that was decided from an older look changes nothing that moved on meanwhile", async () => {
  const session = await turns.session();
  await turns.admit(session);
  const lease = await turns.claim(session);
  const { activation } = await turns.look(lease);
  assert.ok(activation);
  const start = { activation, installation: "test", runsMax: 9 };
  assert.equal(await startRun(db, lease, start), "started");
  const before = await turns.digest();
  assert.equal(await startRun(db, lease, start), "changed");
  assert.equal(await moveActivation(db, lease, activation, { to: "cancelled" }), null);
  assert.equal(await turns.digest(), before);
});

test("the database lets nothing of a turn move on while its sandbox is not proven stopped, or its output not stored", async () => {
  const session = await turns.session();
  await turns.admit(session);
  const lease = await turns.claim(session);
  for (const next of ["hold", "release", "watch", "drain"] as const) {
    const { activation } = await turns.driveTo(lease, next);
    assert.ok(activation);
    const failure = { code: "x", message: "y" };
    for (const move of [
      { to: "committing" },
      { to: "failed", failure },
      { to: "queued", failure, at: (await readSessionSnapshot(db, lease.tenant, session)).now },
    ] as const) {
      await assert.rejects(moveActivation(db, lease, activation, move), (error) =>
        isHoldfastError(error, "conflict"),
      );
    }
  }
});

test("after the end everything outside is removed and its output archived; what waits for somebody holds nothing", async () => {
  const session = await turns.session();
  const waiting = await turns.admit(session);
  const lease = await turns.claim(session);
  await turns.driveTo(lease, "rest", { content: null, outcome: { required_action: action } });
  await turns.step(lease);
  await cleanAll(turns);
  const left = await kernel.ask(
    "select from holdfast.sandbox_attempts s join holdfast.activations a on a.activation_uid = s.owner_id where a.activation_id = $1 and s.state <> 'removed'",
    [waiting],
  );
  assert.equal(left.length, 0);
  const [row] = await kernel.ask<{ state: string; cleaned: boolean }>(
    "select state, cleaned_at is not null as cleaned from holdfast.activations where activation_id = $1",
    [waiting],
  );
  assert.deepEqual(row, { state: "waiting", cleaned: false });
  const open = await kernel.ask(
    "select from holdfast.activations where finished_at is not null and cleaned_at is null",
  );
  assert.equal(open.length, 0);
});

test("the store holds all that is always true", async () => {
  // Nothing stamps positions here meanwhile.
  await stampAll(turns.db, 1000);
  await assertInvariants(kernel.database);
});
