import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { afterFailure, publicationRetries as policy } from "./outbox.ts";
import { microseconds } from "./time.ts";

test("S8: the pause doubles from the first one up to the cap, and jitter stays in its upper half", () => {
  const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
  fc.assert(
    fc.property(fc.integer({ min: 1, max: policy.triesMax - 1 }), random, (tries, r) => {
      const next = afterFailure(tries, policy, r);
      assert.equal(next.state, "pending");
      const doubled = policy.first * 2n ** BigInt(tries - 1);
      const full = doubled < policy.max ? doubled : policy.max;
      if (next.state === "pending") assert.ok(next.after >= full / 2n && next.after <= full);
    }),
  );
});

test("S8: after a bounded number of tries a publication is dead", () => {
  assert.deepEqual(afterFailure(policy.triesMax, policy, 0.5), { state: "dead" });
  assert.deepEqual(afterFailure(policy.triesMax + 1, policy, 0.5), { state: "dead" });
});

test("S8: a destination may ask for a longer pause, up to the cap", () => {
  const after = (asked: bigint) => afterFailure(1, policy, 0, microseconds(asked));
  assert.deepEqual(after(60_000_000n), { state: "pending", after: 60_000_000n });
  assert.deepEqual(after(0n), { state: "pending", after: 500_000n });
  assert.deepEqual(after(10n ** 15n), { state: "pending", after: policy.max });
});
