import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { isHoldfastError } from "../../src/core/errors.ts";
import { stampAll } from "../../src/core/sequencer.ts";
import { instant, seconds } from "../../src/core/time.ts";
import { deadlineOnly, legacy, type Policy, planned } from "../../src/work/policy.ts";
import { effectSafeties } from "../../src/work/safety.ts";
import {
  type Outcome,
  observeWork,
  type Permitted,
  recoverWork,
  settleReconciled,
} from "../../src/work/turn.store.ts";
import { cancelWork, resolveWork, resumeWork, suspendWork } from "../../src/work/work.store.ts";
import { assertInvariants } from "../support/invariants.ts";
import { type Bench, bench, failed, succeeded } from "../support/work-hands.ts";

const plan = { version: "p", offsets: [0, 20, 40, 60].map(seconds), circuit: seconds(200) };
const policies: readonly Policy[] = [
  planned(plan),
  deadlineOnly({ attempts: 4, initial: seconds(1) }),
  legacy({ attempts: 4, initial: seconds(0), longest: seconds(5), elapsed: seconds(400) }),
];
const outcomes: readonly Outcome[] = [
  succeeded(1),
  failed,
  { type: "failed", code: "no", message: "never", final: true },
  { type: "returned" },
];

/** What one of several did next, drawn for it beforehand: `pick` chooses among what there is then. */
type Act = readonly [what: (typeof acts)[number], pick: number];
const acts = [
  "take",
  "take",
  "take",
  "settle",
  "settle",
  "settle",
  "cancel",
  "suspend",
  "resume",
  "prove",
  "wait",
  "submit",
] as const;
const script = fc.array(fc.tuple(fc.constantFrom(...acts), fc.nat(1_000)), { minLength: 40, maxLength: 40 });

/** What may be answered when another was quicker; anything else is a fault, deadlocks and raw errors too. */
const refusals = ["conflict", "fenced", "admission_closed", "deadline_elapsed", "not_found"] as const;

async function actor(one: Bench, ids: string[], todo: readonly Act[]): Promise<void> {
  const { work, tenant, clock } = one;
  const { db } = work;
  const hands = one.hands();
  const held: Permitted[] = [];
  const run = async ([what, pick]: Act) => {
    const id = ids[pick % ids.length] ?? "";
    const ask = { tenant, work: id, by: "ops" };
    switch (what) {
      case "take": {
        const { claimed, lost, toReconcile } = await hands.claim(1 + (pick % 3));
        held.push(...(await hands.ask(...claimed)).permitted);
        if (lost.length > 0) await recoverWork(db, lost);
        for (const item of toReconcile) {
          const verdict = pick % 3 === 0 ? ("unknown" as const) : { applied: pick % 3 === 1 };
          await settleReconciled(db, hands.holder, item, verdict, seconds(1));
        }
        return;
      }
      case "settle": {
        const [item] = held.splice(pick % Math.max(1, held.length), 1);
        if (item === undefined) return;
        const outcome = outcomes[pick % outcomes.length] ?? failed;
        for (const late of (await hands.done(item, outcome)).unmatched)
          await observeWork(db, hands.holder, late, "p");
        return;
      }
      case "cancel":
        return void (await cancelWork(db, { ...ask, reason: "no" }));
      case "suspend":
        return void (await suspendWork(db, ask));
      case "resume":
        return void (await resumeWork(db, { ...ask, how: pick % 2 === 0 ? "released" : "requeued" }));
      case "prove":
        return void (await resolveWork(db, { ...ask, verdict: pick % 2 === 0 ? "applied" : "not_applied" }));
      case "wait":
        return clock.advance(seconds(pick % 15));
      case "submit": {
        const deadline =
          one.work1.policy.kind === "legacy"
            ? {}
            : { deadline: instant(clock.now() + seconds(30 + (pick % 200))) };
        ids.push(await one.give(deadline));
        return;
      }
      default:
        return what satisfies never;
    }
  };
  for (const act of todo) {
    await run(act).catch((error: unknown) => {
      if (!refusals.some((code) => isHoldfastError(error, code))) throw error;
    });
  }
}

for (const [place, safety] of effectSafeties.entries()) {
  test(`W4 W5 W6 W10 W11: ${safety}: eight at once do anything to the same items, and what is always true stays true`, async (t) => {
    for (const [round, policy] of policies.entries()) {
      const one = await bench(t, { policy, safety });
      const deadline = policy.kind === "legacy" ? {} : { deadline: instant(one.clock.now() + seconds(150)) };
      const ids: string[] = [];
      for (let n = 0; n < 6; n += 1) ids.push(await one.give(deadline));
      const scripts = fc.sample(script, { numRuns: 8, seed: 11 + 10 * place + round });
      await Promise.all(scripts.map((todo) => actor(one, ids, todo)));
      await stampAll(one.work.db, 500);
      await assertInvariants(one.database);
      const strict = ["reconcile_before_retry", "manual_resolution"].includes(safety);
      const unproven = await one.ask(
        `select a.work_id, a.attempt from holdfast.work_attempts a
         where a.outcome = 'unknown'
           and (exists (select from holdfast.work_attempts b where b.work_id = a.work_id and b.attempt > a.attempt)
             or exists (select from holdfast.leases_work l where l.resource_id = a.work_id and l.attempt > a.attempt)
             or exists (select from holdfast.work_history h where h.work_id = a.work_id and h.attempts > a.attempt))
           and not exists (select from holdfast.work_proofs p
             where p.work_id = a.work_id and p.attempt = a.attempt and p.epoch = a.epoch and p.verdict = 'not_applied')`,
      );
      if (strict) assert.deepEqual(unproven, [], "nothing runs again while it is unknown");
      const [seen] = await one.ask<{ n: number }>("select count(*)::int as n from holdfast.work_attempts");
      assert.ok((seen?.n ?? 0) > 5, "something was tried and lost");
    }
  });
}
