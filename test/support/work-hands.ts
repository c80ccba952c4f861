import assert from "node:assert/strict";
import { brandId, type IncarnationId, uuidv7 } from "../../src/core/ids.ts";
import { type Instant, type Microseconds, seconds } from "../../src/core/time.ts";
import { type Clock, controlClock } from "../../src/dev/testing.ts";
import { defineWork, type WorkDefinition } from "../../src/work/define.ts";
import { type Submission, submit } from "../../src/work/open.ts";
import type { Policy } from "../../src/work/policy.ts";
import type { EffectSafety } from "../../src/work/safety.ts";
import {
  type Claimed,
  type Claims,
  claimWork,
  type Outcome,
  type Permitted,
  recoverWork,
  type Turn,
  turnWork,
} from "../../src/work/turn.store.ts";
import { registerVersion } from "../../src/work/version.store.ts";
import { inspectWork } from "../../src/work/work.store.ts";
import { type WorkStand, workStand } from "./work.ts";

/** A worker whose every step is the test's own. */
export interface Hands {
  readonly holder: IncarnationId;
  readonly claim: (limit?: number) => Promise<Claims>;
  /** Claims the one item that is due and gets its permit. */
  readonly permit: () => Promise<Permitted>;
  readonly ask: (...items: readonly Claimed[]) => Promise<Turn>;
  readonly done: (item: Permitted, outcome: Outcome) => Promise<Turn>;
}

export const succeeded = (result: unknown = null): Outcome => ({
  type: "succeeded",
  result: JSON.stringify(result),
});
export const failed: Outcome = { type: "failed", code: "no", message: "not now", final: false };

export interface Bench extends WorkStand {
  readonly clock: Clock;
  readonly work1: WorkDefinition;
  readonly hands: () => Hands;
  readonly give: (options?: Submission & { readonly input?: unknown }) => Promise<string>;
  readonly state: (id: string) => Promise<string>;
  /** Lets the lease of the permitted item pass and has it recovered. Gives what it came to. */
  readonly lose: () => Promise<string>;
}

export const leaseUs: Microseconds = seconds(30);

/** One version under a clock that the test moves. */
export async function bench(
  scope: Parameters<typeof workStand>[0],
  {
    policy,
    safety = "idempotent",
    breaker,
  }: {
    readonly policy: Policy;
    readonly safety?: EffectSafety;
    readonly breaker?: WorkDefinition["breaker"];
  },
  start?: Instant,
): Promise<Bench> {
  const stand = await workStand(scope);
  const clock = await controlClock(stand.ask, start);
  const { db } = stand.work;
  const base = { name: "charge", version: "1", policy, run: () => null, ...(breaker ? { breaker } : {}) };
  const work1 = (
    safety === "reconcile_before_retry"
      ? defineWork({ ...base, safety, reconcile: () => "unknown" })
      : defineWork({ ...base, safety })
  ) as WorkDefinition;
  const number = await registerVersion(db, work1);
  const hands = (): Hands => {
    const holder = brandId<IncarnationId>(uuidv7());
    const claim = (limit = 100) => claimWork(db, { holder, lanes: [`${number}.default`], limit, leaseUs });
    const ask = (...items: readonly Claimed[]) => turnWork(db, holder, [], items);
    return {
      holder,
      claim,
      ask,
      async permit() {
        let { claimed, toReconcile } = await claim(1);
        // What waits for its reconciler is due, too, and stays with this holder.
        while (toReconcile.length > 0) ({ claimed, toReconcile } = await claim(1));
        assert.equal(claimed.length, 1, "one is due");
        const { permitted, passed } = await ask(...claimed);
        const [one] = permitted;
        assert.ok(one, `passed: ${passed.map(({ what }) => what).join()}`);
        return one;
      },
      done: (item, outcome) => turnWork(db, holder, [{ item, outcome }], []),
    };
  };
  return {
    ...stand,
    clock,
    work1,
    hands,
    async give({ input = {}, ...options } = {}) {
      return (await submit(stand.work, work1, input, options)).id;
    },
    async state(id) {
      return (await inspectWork(db, stand.tenant, id)).item.state;
    },
    async lose() {
      await clock.advance(leaseUs);
      const { lost } = await hands().claim();
      assert.equal(lost.length, 1, "one was lost");
      const [what] = await recoverWork(db, lost);
      return what ?? "";
    },
  };
}
