import assert from "node:assert/strict";
import { test } from "node:test";
import { assertInvariants } from "../../test/support/invariants.ts";
import { type Bench, bench } from "../../test/support/work-hands.ts";
import { stampAll } from "../core/sequencer.ts";
import { seconds } from "../core/time.ts";
import { planned } from "./policy.ts";
import { cancelWork, inspectWork, resolveWork, suspendWork } from "./work.store.ts";

const plan = { version: "p", offsets: [0, 100, 200].map(seconds), circuit: seconds(300) };
const by = "ops";
const sound = async ({ work, database }: Bench) => {
  await stampAll(work.db, 100);
  await assertInvariants(database);
};
const told = async ({ work, tenant }: Bench, id: string) => {
  const { item, attempts, suspensions } = await inspectWork(work.db, tenant, id);
  return {
    state: item.state,
    count: item.attempts,
    attempts: attempts.map(({ attempt, outcome }) => `${attempt} ${outcome}`),
    suspensions: suspensions.map(({ reason, ending }) => [reason, ending]),
  };
};

test("W12: a failure after the cutoff of an item with an unknown outcome stays on record, with its words", async (t) => {
  const one = await bench(t, { policy: planned(plan) });
  const id = await one.give();
  const worker = one.hands();
  await worker.permit();
  await one.lose();
  await one.clock.advance(seconds(70));
  const second = await worker.permit();
  await one.clock.advance(seconds(10));
  const [settled] = (
    await worker.done(second, { type: "failed", code: "declined", message: "no money", final: true })
  ).settled;
  assert.equal(settled?.what, "suspended");
  assert.deepEqual(await told(one, id), {
    state: "suspended",
    count: 2,
    attempts: ["1 unknown", "2 failed"],
    suspensions: [["outcome_unknown", null]],
  });
  await sound(one);
});

test("W5: a permit that is given back after a cancellation does not count, and is on record", async (t) => {
  const one = await bench(t, { policy: planned(plan) });
  const ask = (work: string) => ({ tenant: one.tenant, work, by, reason: "not wanted" });
  const fresh = await one.give();
  const worker = one.hands();
  const unused = await worker.permit();
  await cancelWork(one.work.db, ask(fresh));
  await worker.done(unused, { type: "returned" });
  assert.deepEqual(await told(one, fresh), {
    state: "cancelled_before_effect",
    count: 0,
    attempts: ["1 returned"],
    suspensions: [],
  });
  const lost = await one.give();
  await worker.permit();
  await one.lose();
  await one.clock.advance(seconds(70));
  const again = await worker.permit();
  await cancelWork(one.work.db, ask(lost));
  await worker.done(again, { type: "returned" });
  const { state, count } = await told(one, lost);
  assert.deepEqual([state, count], ["suspended", 1]);
  await sound(one);
});

test("W11: what was proven not applied waits for a decision, and no longer for knowledge", async (t) => {
  const one = await bench(t, { policy: planned(plan), safety: "manual_resolution" });
  const id = await one.give();
  await one.hands().permit();
  await one.lose();
  await resolveWork(one.work.db, { tenant: one.tenant, work: id, by, verdict: "not_applied" });
  assert.deepEqual((await told(one, id)).suspensions, [
    ["outcome_unknown", "proven"],
    ["not_applied", null],
  ]);
  const other = await one.give();
  await suspendWork(one.work.db, { tenant: one.tenant, work: other, by });
  assert.equal((await told(one, other)).state, "suspended");
  await sound(one);
});
