import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { workStand } from "../../test/support/work.ts";
import { formatInstant, instant, microseconds } from "../core/time.ts";
import { durationMax, lastInstant } from "./plan.ts";
import { closure, cutoff, deadlineOnly, legacy, nextDue, planned, type Timing } from "./policy.ts";

const small = fc.bigInt({ min: 0n, max: 60n });

/** Few values, so that ties and neighbours are common. */
const timings: fc.Arbitrary<Timing> = fc
  .record({
    kind: fc.constantFrom("legacy", "deadline", "planned"),
    steps: fc.array(fc.bigInt({ min: 1n, max: 9n }), { maxLength: 4 }),
    past: fc.bigInt({ min: 1n, max: 9n }),
    more: small,
    elapsed: fc.bigInt({ min: 1n, max: 60n }),
    initial: small,
    longer: small,
    attempts: fc.integer({ min: 1, max: 5 }),
    notAfter: fc.option(small, { nil: null }),
  })
  .map(({ kind, steps, past, more, elapsed, initial, longer, attempts, notAfter }) => {
    const accepted = instant(1_800_000_000_000_000n);
    const retry = { attempts, initial: microseconds(initial), longest: microseconds(initial + longer) };
    let last = 0n;
    const offsets = [0n, ...steps.map((step) => (last += step))].map(microseconds);
    const plan = { version: "p", offsets, circuit: microseconds(last + past) };
    const deadline = instant(accepted + (notAfter ?? 30n));
    switch (kind) {
      case "legacy":
        return { policy: legacy({ ...retry, elapsed: microseconds(elapsed) }), accepted, notAfter: null };
      case "deadline":
        return {
          policy: deadlineOnly({ ...retry, elapsed: microseconds(elapsed) }),
          accepted,
          notAfter: deadline,
        };
      case "planned":
        return {
          policy: planned(plan, { elapsed: microseconds(plan.circuit + more) }),
          accepted,
          notAfter: notAfter === null ? null : deadline,
        };
    }
  });

test("W10: the database decides cutoffs, reasons and slots exactly as the program does", async (t) => {
  const { ask } = await workStand(t);
  const cases = fc.sample(
    fc.tuple(timings, fc.integer({ min: 0, max: 6 }), fc.bigInt({ min: 0n, max: 80n })),
    { numRuns: 400, seed: 7 },
  );
  await compare(ask, cases);
});

/** The largest that may be stored of everything, one less, and what lies around each bound. */
function extremes(): readonly Case[] {
  const accepted = instant(1_800_000_000_000_000n);
  const [most, one] = [durationMax, microseconds(1n)];
  const whole = (count: number, circuit = most, elapsed = most) =>
    planned(
      {
        version: "p",
        offsets: Array.from({ length: count }, (_, n) =>
          microseconds(n === 0 ? 0n : circuit - BigInt(count) + BigInt(n)),
        ),
        circuit,
      },
      { elapsed },
    );
  const policies = [
    whole(1),
    whole(256),
    whole(2, microseconds(most - 1n), most),
    whole(1, one, one),
    legacy({ attempts: 256, initial: most, longest: most, elapsed: most, lease: most }),
    legacy({ attempts: 256, initial: one, longest: most, elapsed: most }),
    legacy({ attempts: 256, initial: microseconds(0n), longest: most, elapsed: one }),
    legacy({ attempts: 256, initial: microseconds(3n), longest: microseconds(3n << 49n), elapsed: most }),
  ];
  const deadlines = [null, instant(accepted + 1n), instant(accepted + most), lastInstant];
  const since = [0n, 1n, 2n, most - 2n, most - 1n, most, most + 1n];
  const used = [0, 1, 2, 49, 50, 51, 52, 53, 54, 63, 64, 65, 255, 256];
  return policies.flatMap((policy) =>
    deadlines
      .filter((notAfter) => notAfter === null || policy.kind === "planned")
      .flatMap((notAfter) =>
        since.flatMap((after) => used.map((n): Case => [{ policy, accepted, notAfter }, n, after])),
      ),
  );
}

test("W10: neither overflows or loses a microsecond at the largest plan, the longest durations and the last instant", async (t) => {
  const { ask } = await workStand(t);
  const cases = extremes();
  assert.ok(cases.length > 1_500);
  await compare(ask, cases);
});

type Case = readonly [timing: Timing, used: number, after: bigint];

async function compare(
  ask: <Row extends object>(text: string, values?: readonly unknown[]) => Promise<Row[]>,
  cases: readonly Case[],
): Promise<void> {
  const rows = cases.map(([timing, used, after]) => {
    const { policy, accepted, notAfter } = timing;
    const now = instant(accepted + after);
    const item = {
      accepted_at: formatInstant(accepted),
      due_at: formatInstant(accepted),
      attempts_max: policy.retry.attempts,
      retry_initial_microseconds: String(policy.retry.initial),
      retry_longest_microseconds: String(policy.retry.longest),
      elapsed_max_microseconds: String(policy.elapsed),
      maximum_circuit_microseconds: policy.plan === null ? null : String(policy.plan.circuit),
      attempt_plan_offsets: policy.plan?.offsets.map(String) ?? null,
      execution_not_after: notAfter === null ? null : formatInstant(notAfter),
    };
    const due = nextDue(timing, used, now);
    const expected = [
      String(cutoff(timing) - accepted),
      closure(timing, used, now),
      due === undefined ? null : String(due - accepted),
    ];
    return { item, used, now: formatInstant(now), expected };
  });
  const found = await ask<{ cutoff: string; reason: string | null; due: string | null }>(
    `select (extract(epoch from holdfast.work_cutoff(w.accepted_at, w.elapsed_max_microseconds, w.maximum_circuit_microseconds, w.execution_not_after) - w.accepted_at) * 1000000)::bigint::text as cutoff,
       holdfast.work_closure(w, c.used, c.now) as reason,
       (extract(epoch from holdfast.work_next_due(w, c.used, c.now) - w.accepted_at) * 1000000)::bigint::text as due
     from rows from (jsonb_to_recordset($1::jsonb) as (item jsonb, used int, now timestamptz)) with ordinality as c (item, used, now, place),
       jsonb_populate_record(null::holdfast.work_items, c.item) w
     order by c.place`,
    [JSON.stringify(rows)],
  );
  assert.equal(found.length, cases.length);
  for (const [place, row] of found.entries()) {
    assert.deepEqual([row.cutoff, row.reason, row.due], rows[place]?.expected, JSON.stringify(rows[place]));
  }
}
