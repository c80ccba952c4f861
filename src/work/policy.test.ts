import assert from "node:assert/strict";
import { test } from "node:test";
import { isHoldfastError } from "../core/errors.ts";
import { type Instant, instant, microseconds, seconds } from "../core/time.ts";
import { type AttemptPlan, durationMax, lastInstant } from "./plan.ts";
import {
  accepts,
  admits,
  closure,
  cutoff,
  deadlineOnly,
  legacy,
  nextDue,
  pause,
  planned,
  type Timing,
} from "./policy.ts";

const us = microseconds;
const at = (value: bigint): Instant => instant(value);
const plan: AttemptPlan = { version: "p", offsets: [us(0n), us(10n), us(25n)], circuit: us(30n) };
/** A = 1000, C = 30, M = 40. */
const timing = (notAfter: bigint | null = null): Timing => ({
  policy: planned(plan, { elapsed: us(40n) }),
  accepted: at(1000n),
  notAfter: notAfter === null ? null : at(notAfter),
});
const due = (used: number) => nextDue(timing(), used, at(5000n));

test("W10: planned attempt i is eligible at A+O[i], whenever the one before ended; then no slot is left", () => {
  assert.deepEqual([due(0), due(1), due(2), due(3)], [1000n, 1010n, 1025n, undefined]);
});

test("W10: an attempt is admitted from its slot on, to the microsecond, until the exclusive cutoff", () => {
  const admitted = (used: number, now: bigint, d: bigint | null = null) =>
    admits(timing(d), used, due(used) ?? at(0n), at(now));
  assert.deepEqual([admitted(1, 1009n), admitted(1, 1010n)], [false, true]);
  assert.deepEqual([admitted(2, 1029n), admitted(2, 1030n)], [true, false], "A+C");
  assert.deepEqual([admitted(1, 1019n, 1020n), admitted(1, 1020n, 1020n)], [true, false], "D");
  assert.equal(admitted(3, 1029n), false, "no slot is left");
});

test("W10: the cutoff is the earliest of A+C, A+M and D, and without a plan of A+M and D", () => {
  assert.equal(cutoff(timing()), 1030n);
  assert.equal(cutoff(timing(1029n)), 1029n);
  assert.equal(cutoff(timing(1031n)), 1030n);
  const bare = { policy: deadlineOnly({ elapsed: us(40n) }), accepted: at(1000n) };
  assert.equal(cutoff({ ...bare, notAfter: at(1050n) }), 1040n);
  assert.equal(cutoff({ ...bare, notAfter: at(1039n) }), 1039n);
  assert.equal(cutoff({ policy: legacy({ elapsed: us(7n) }), accepted: at(1000n), notAfter: null }), 1007n);
});

const reasons: readonly (readonly [
  name: string,
  Timing,
  used: number,
  now: bigint,
  reason: string | null,
])[] = [
  ["before all", timing(2000n), 0, 1000n, null],
  ["the circuit", timing(2000n), 0, 1030n, "circuit_elapsed"],
  ["the circuit, however late it is seen", timing(1031n), 3, 9999n, "circuit_elapsed"],
  ["the deadline first", timing(1029n), 3, 9999n, "deadline_elapsed"],
  ["a tie of deadline and circuit", timing(1030n), 3, 1030n, "deadline_elapsed"],
  [
    "a tie of circuit and elapsed",
    { ...timing(), policy: planned(plan, { elapsed: us(30n) }) },
    3,
    1030n,
    "circuit_elapsed",
  ],
  ["slots, while nothing has elapsed", timing(2000n), 3, 1029n, "slots_exhausted"],
  [
    "elapsed",
    { policy: deadlineOnly({ elapsed: us(5n) }), accepted: at(1000n), notAfter: at(2000n) },
    1,
    1005n,
    "elapsed_exhausted",
  ],
  [
    "a tie of deadline and elapsed",
    { policy: deadlineOnly({ elapsed: us(5n) }), accepted: at(1000n), notAfter: at(1005n) },
    1,
    1005n,
    "deadline_elapsed",
  ],
];
for (const [name, item, used, now, reason] of reasons) {
  test(`W10: why admission is closed: ${name}`, () => assert.equal(closure(item, used, at(now)), reason));
}

test("W10: success is judged by the deadline alone, also after the circuit window", () => {
  assert.equal(accepts(timing(1050n), at(1049n)), true);
  assert.equal(accepts(timing(1050n), at(1050n)), false);
  assert.equal(accepts(timing(), at(999_999n)), true);
});

test("W1: a legacy pause is counted from the decision, doubles, and stops at the longest", () => {
  const retry = { attempts: 256, initial: us(3n), longest: us(20n) };
  assert.deepEqual(
    [1, 2, 3, 4, 255].map((failed) => pause(retry, failed)),
    [3n, 6n, 12n, 20n, 20n],
  );
  assert.equal(pause({ ...retry, initial: us(0n) }, 200), 0n);
  assert.equal(pause({ attempts: 2, initial: durationMax, longest: durationMax }, 256), durationMax);
  const item = { policy: legacy({ attempts: 3, initial: us(3n) }), accepted: at(1000n), notAfter: null };
  assert.deepEqual(
    [0, 1, 2, 3].map((used) => nextDue(item, used, at(5000n))),
    [1000n, 5003n, 5006n, undefined],
  );
});

test("W10: arithmetic beyond the last instant stops there and closes nothing early", () => {
  const far = at(lastInstant - 5n);
  const item = {
    policy: planned({ ...plan, circuit: durationMax }, { elapsed: durationMax }),
    accepted: far,
    notAfter: null,
  };
  assert.equal(cutoff(item), lastInstant);
  assert.equal(nextDue(item, 2, far), lastInstant);
  assert.equal(closure(item, 0, far), null);
});

test("W3: a plan or policy that the database would refuse is refused before", () => {
  const refused = (make: () => unknown) =>
    assert.throws(make, (error) => isHoldfastError(error, "invalid_request"));
  const offsets = (...values: bigint[]) => planned({ ...plan, offsets: values.map(us) });
  refused(() => offsets());
  refused(() => offsets(1n));
  refused(() => offsets(0n, 0n));
  refused(() => offsets(0n, 20n, 10n));
  refused(() => offsets(0n, 30n));
  refused(() =>
    planned({ ...plan, offsets: Array.from({ length: 257 }, (_, n) => us(BigInt(n))), circuit: us(999n) }),
  );
  assert.equal(
    planned({ ...plan, offsets: Array.from({ length: 256 }, (_, n) => us(BigInt(n))), circuit: us(256n) })
      .retry.attempts,
    256,
  );
  refused(() => planned({ ...plan, version: "" }));
  refused(() => planned({ ...plan, version: "x".repeat(101) }));
  refused(() => planned({ ...plan, circuit: us(durationMax + 1n) }));
  refused(() => planned(plan, { elapsed: us(29n) }));
  refused(() => legacy({ attempts: 0 }));
  refused(() => legacy({ attempts: 257 }));
  refused(() => legacy({ initial: seconds(2), longest: seconds(1) }));
  refused(() => legacy({ lease: us(999_999n) }));
  refused(() => legacy({ elapsed: us(0n) }));
});
