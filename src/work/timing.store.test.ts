import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "pg";
import { until } from "../../test/support/until.ts";
import { type Bench, bench, failed, leaseUs, succeeded } from "../../test/support/work-hands.ts";
import { isHoldfastError } from "../core/errors.ts";
import { renewLeases } from "../core/lease.sql.ts";
import { runAlone } from "../core/postgres/transition.ts";
import { type Instant, instant, microseconds, seconds } from "../core/time.ts";
import { submit } from "./open.ts";
import { lastInstant } from "./plan.ts";
import { deadlineOnly, legacy, planned } from "./policy.ts";
import { observeWork, recoverWork } from "./turn.store.ts";
import { inspectWork, resolveWork, resumeWork, suspendWork } from "./work.store.ts";

const us = microseconds;
const by = "ops";
const plan = { version: "p", offsets: [seconds(0), seconds(100), seconds(200)], circuit: seconds(300) };

async function records({ work, tenant }: Bench, id: string, accepted: Instant) {
  const { item } = await inspectWork(work.db, tenant, id);
  const since = (at: Instant | null) => (at === null ? null : Number(at - accepted) / 1_000_000);
  return [
    item.execution_admission_closed_reason,
    since(item.execution_admission_closed_at),
    since(item.execution_deadline_reached_at),
  ];
}

/** In seconds from acceptance: the deadline, then each look at the item, and what is on record after it. */
const orders: readonly (readonly [
  name: string,
  deadline: number,
  looks: readonly (readonly [
    at: number,
    look: "late result" | "recovery" | "proof",
    reason: string | null,
    closed: number | null,
    reached: number | null,
  ])[],
])[] = [
  [
    "the circuit closes, then the deadline is reached",
    500,
    [
      [400, "recovery", "circuit_elapsed", 400, null],
      [600, "proof", "circuit_elapsed", 400, 600],
    ],
  ],
  [
    "the circuit closes, and the deadline is never reached",
    500,
    [
      [400, "recovery", "circuit_elapsed", 400, null],
      [450, "proof", "circuit_elapsed", 400, null],
    ],
  ],
  [
    "the deadline is reached, then admission is seen closed by it",
    200,
    [
      [250, "late result", null, null, 250],
      [260, "recovery", "deadline_elapsed", 260, 250],
      [270, "proof", "deadline_elapsed", 260, 250],
    ],
  ],
  [
    "the deadline is reached first, and the look that closes comes after the circuit, too",
    200,
    [
      [250, "late result", null, null, 250],
      [400, "recovery", "deadline_elapsed", 400, 250],
    ],
  ],
  [
    "one look sees both",
    200,
    [
      [250, "recovery", "deadline_elapsed", 250, 250],
      [260, "late result", "deadline_elapsed", 250, 250],
      [900, "proof", "deadline_elapsed", 250, 250],
    ],
  ],
  [
    "one look sees both, and the circuit was earlier",
    350,
    [
      [400, "recovery", "circuit_elapsed", 400, 400],
      [410, "late result", "circuit_elapsed", 400, 400],
    ],
  ],
  ["a tie is the deadline's", 300, [[300, "recovery", "deadline_elapsed", 300, 300]]],
  [
    "a look before everything records nothing, and a later one does",
    500,
    [
      [100, "recovery", null, null, null],
      [550, "proof", "circuit_elapsed", 550, 550],
    ],
  ],
];

for (const [name, deadline, looks] of orders) {
  test(`W4: the two records, each as it was first seen: ${name}`, async (t) => {
    const one = await bench(t, { policy: planned(plan), safety: "manual_resolution" });
    const { clock, work, tenant } = one;
    const accepted = clock.now();
    const id = await one.give({ deadline: instant(accepted + seconds(deadline)) });
    const worker = one.hands();
    const item = await worker.permit();
    for (const [at, look, ...expected] of looks) {
      await clock.set(instant(accepted + seconds(at)));
      if (look === "recovery") assert.deepEqual(await recoverWork(work.db, [item]), ["suspended"]);
      else if (look === "proof") await resolveWork(work.db, { tenant, work: id, by, verdict: "applied" });
      else {
        const outcome = succeeded();
        assert.equal((await worker.done(item, outcome)).unmatched.length, 1);
        assert.equal(await observeWork(work.db, worker.holder, { item, outcome }, "p"), "quarantined");
      }
      assert.deepEqual(await records(one, id, accepted), expected, `${look} at ${at}`);
    }
  });
}

test("W4: slots that are used up are a closure of their own, and the deadline is still seen", async (t) => {
  const single = { version: "p", offsets: [us(0n)], circuit: seconds(1_000) };
  const one = await bench(t, { policy: planned(single), safety: "manual_resolution" });
  const { clock, work, tenant } = one;
  const accepted = clock.now();
  const id = await one.give({ deadline: instant(accepted + seconds(500)) });
  const item = await one.hands().permit();
  await clock.advance(seconds(100));
  await recoverWork(work.db, [item]);
  assert.deepEqual(await records(one, id, accepted), ["slots_exhausted", 100, null]);
  await clock.advance(seconds(500));
  await resolveWork(work.db, { tenant, work: id, by, verdict: "not_applied" });
  assert.deepEqual(await records(one, id, accepted), ["slots_exhausted", 100, 600]);
  assert.equal(await one.state(id), "failed");
});

/** Holds the item's row, lets the asked one run into it, moves the clock, and lets go. */
async function whileLocked<T>(one: Bench, id: string, to: Instant, ask: () => Promise<T>): Promise<T> {
  const client = new Client(one.database.superuser);
  await client.connect();
  try {
    await client.query("begin");
    await client.query("select from holdfast.leases_work where resource_id = $1 for update", [id]);
    const asked = ask();
    asked.catch(() => undefined);
    await until("it waits for the row", async () => {
      const waiting = await one.ask(
        "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
      );
      return waiting.length > 0;
    });
    await one.clock.set(to);
    await client.query("commit");
    return await asked;
  } finally {
    await client.end();
  }
}

test("W10: every decision is by the clock after the row's lock: what passes while it is waited for has passed", async (t) => {
  const one = await bench(t, { policy: deadlineOnly({ attempts: 3 }), safety: "manual_resolution" });
  const { clock, work, tenant, give, hands, state } = one;
  const accepted = clock.now();
  const deadline = instant(accepted + seconds(1_000));
  const worker = hands();
  const whats = (turn: { readonly passed: readonly { readonly what: string }[] }) =>
    turn.passed.map(({ what }) => what);

  const claimedId = await give({ deadline: instant(accepted + seconds(10)) });
  const { claimed } = await worker.claim(1);
  const permit = await whileLocked(one, claimedId, instant(accepted + seconds(10)), () =>
    worker.ask(...claimed),
  );
  assert.deepEqual([permit.permitted.length, whats(permit)], [0, ["closed"]], "a permit");

  const done = await give({ deadline });
  const item = await worker.permit();
  const late = instant(clock.now() + leaseUs);
  const success = await whileLocked(one, done, late, () => worker.done(item, succeeded()));
  assert.equal(success.unmatched.length, 1, "a success");
  assert.deepEqual(await recoverWork(work.db, [item]), ["suspended"]);

  const lost = await give({ deadline });
  const second = await worker.permit();
  const failure = await whileLocked(one, lost, instant(clock.now() + leaseUs), () =>
    worker.done(second, failed),
  );
  assert.equal(failure.unmatched.length, 1, "a failure");
  assert.deepEqual(await recoverWork(work.db, [second]), ["suspended"]);

  const resting = await give({ deadline });
  await suspendWork(work.db, { tenant, work: resting, by });
  const resumed = whileLocked(one, resting, deadline, () =>
    resumeWork(work.db, { tenant, work: resting, by, how: "requeued" }),
  );
  await assert.rejects(resumed, (error) => isHoldfastError(error, "admission_closed"), "a requeue");
  assert.deepEqual(
    [await state(claimedId), await state(done), await state(lost)],
    ["failed", "suspended", "suspended"],
  );
});

test("W10: a proof that was waiting when admission closed settles the truth and opens nothing", async (t) => {
  const one = await bench(t, { policy: planned(plan), safety: "reconcile_before_retry" });
  const { clock, work, tenant } = one;
  const accepted = clock.now();
  const id = await one.give();
  await one.hands().permit();
  await one.lose();
  await whileLocked(one, id, instant(accepted + seconds(300)), () =>
    resolveWork(work.db, { tenant, work: id, by, verdict: "not_applied" }),
  );
  assert.equal(await one.state(id), "failed");
});

test("W10: renewals give a lease no more than its longest life and its deadline allow, to the microsecond", async (t) => {
  const one = await bench(t, { policy: deadlineOnly({ lease: seconds(45) }) });
  const { clock, give, hands, work } = one;
  const accepted = clock.now();
  await give({ deadline: instant(accepted + seconds(40) + 1n) });
  await give({ deadline: instant(accepted + seconds(900)) });
  const worker = hands();
  const items = [await worker.permit(), await worker.permit()].sort((a, b) =>
    (a.deadline ?? "").localeCompare(b.deadline ?? ""),
  );
  const renew = async () => {
    const rows = await runAlone(work.db, "dispatcher", renewLeases, {
      holder: worker.holder,
      lease_us: leaseUs,
      tenants: items.map(({ tenant }) => tenant),
      kinds: items.map(() => "work"),
      resources: items.map(({ id }) => id),
      epochs: items.map(({ epoch }) => epoch),
    });
    return rows.map(({ state, left_us }) => [state, left_us]);
  };
  assert.deepEqual(await renew(), [
    ["renewed", leaseUs],
    ["renewed", leaseUs],
  ]);
  await clock.advance(seconds(20));
  assert.deepEqual(await renew(), [
    ["renewed", seconds(20) + 1n],
    ["renewed", seconds(25)],
  ]);
  await clock.advance(seconds(20));
  assert.deepEqual(await renew(), [
    ["renewed", 1n],
    ["renewed", seconds(5)],
  ]);
  await clock.advance(1n);
  assert.deepEqual(
    (await renew()).map(([state]) => state),
    ["lost", "renewed"],
  );
  await clock.set(instant(accepted + seconds(45)));
  assert.deepEqual(
    (await renew()).map(([state]) => state),
    ["lost", "lost"],
  );
});

test("W11: a proof settles the most recent open permit; those before it keep the item suspended", async (t) => {
  const one = await bench(t, { policy: planned(plan), safety: "idempotent" });
  const { clock, work, tenant, state } = one;
  const twiceLost = async () => {
    const id = await one.give();
    await one.hands().permit();
    assert.equal(await one.lose(), "retry");
    await clock.advance(seconds(100));
    assert.equal((await one.hands().permit()).attempt, 2, "a lost permit has used its slot");
    await clock.advance(seconds(300));
    await recoverWork(work.db, (await one.hands().claim()).lost);
    assert.equal(await state(id), "suspended");
    return id;
  };
  const verdicts = async (id: string) =>
    (await inspectWork(work.db, tenant, id)).attempts.map(({ attempt, verdict }) => [attempt, verdict]);
  const id = await twiceLost();
  const prove = (verdict: "applied" | "not_applied") =>
    resolveWork(work.db, { tenant, work: id, by, verdict });
  assert.equal(await prove("not_applied"), "suspended");
  assert.deepEqual(await verdicts(id), [
    [1, null],
    [2, "not_applied"],
  ]);
  assert.equal(await prove("not_applied"), "failed", "nothing is unknown any more, and admission is closed");
  await assert.rejects(prove("applied"), (error) => isHoldfastError(error, "conflict"));
  const other = await twiceLost();
  assert.equal(await resolveWork(work.db, { tenant, work: other, by, verdict: "applied" }), "succeeded");
  assert.deepEqual(await verdicts(other), [
    [1, null],
    [2, "applied"],
  ]);
});

test("W10: acceptance is the instant of the insert, not of the transaction's beginning or end", async (t) => {
  const { clock, work, work1, database, ask } = await bench(t, { policy: legacy() });
  const client = new Client({ ...database.app, options: "-c role=holdfast_producer" });
  await client.connect();
  try {
    await client.query("begin");
    await client.query("select 1");
    await clock.advance(7n);
    const inserted = clock.now();
    const { acceptedAt } = await submit(client, work1, {}, { tenant: "acme" });
    await clock.advance(7n);
    await client.query("commit");
    assert.equal(acceptedAt, inserted);
  } finally {
    await client.end();
  }
  const [row] = await ask<{ early: boolean }>(
    "select accepted_at = due_at and accepted_at = (select at from controlled.clock) - interval '7 microseconds' as early from holdfast.work_items",
  );
  assert.equal(row?.early, true);
  assert.equal((await submit(work, work1, {})).acceptedAt, clock.now());
});

test("W10: a deadline is kept to its last microsecond, up to the end of time, and nothing beyond it is accepted", async (t) => {
  const { clock, give, work, tenant } = await bench(t, { policy: deadlineOnly() });
  for (const deadline of [clock.now() + 1n, lastInstant]) {
    const id = await give({ deadline: instant(deadline) });
    assert.equal((await inspectWork(work.db, tenant, id)).item.execution_not_after, deadline);
  }
  for (const deadline of [lastInstant + 1n, -1n]) {
    await assert.rejects(give({ deadline: instant(deadline) }), (error) =>
      isHoldfastError(error, "invalid_request"),
    );
  }
});

test("W10: what is finer than a microsecond is refused and never rounded", () => {
  assert.deepEqual(
    [seconds(0.000001), seconds(86_400.123456), seconds(0.1 + 0.2)],
    [1n, 86_400_123_456n, 300_000n],
  );
  const tooFine = [1e-9, 0.0000005, 1.0000005, 86_400.000000001, 86_400.1234565];
  for (const finer of [...tooFine, Number.NaN, Number.POSITIVE_INFINITY])
    assert.throws(() => seconds(finer), RangeError);
});

test("W7: the hint decides nothing: an item is due by its due_at alone, and who looks for it sees no payload", async (t) => {
  const { give, hands, ask, clock, database } = await bench(t, { policy: planned(plan) });
  const id = await give({ input: { secret: 1 } });
  // Behind the triggers, which let nobody change one.
  for (const hint of [null, "99.elsewhere"]) {
    const client = new Client(database.superuser);
    await client.connect();
    await client.query("set session_replication_role = replica");
    await client.query("update holdfast.work_items set discovery_hint = $1", [hint]);
    await client.end();
    const worker = hands();
    const { claimed } = await worker.claim();
    assert.deepEqual(
      claimed.map((item) => item.id),
      [id],
      `hint ${hint}`,
    );
    await clock.advance(leaseUs);
  }
  await ask(
    "update holdfast.leases_work set due_at = (select at + interval '1 microsecond' from controlled.clock)",
  );
  assert.equal((await hands().claim()).claimed.length, 0);
  await clock.advance(1n);
  assert.equal((await hands().claim()).claimed.length, 1);
  const client = new Client({ ...database.app, options: "-c role=holdfast_dispatcher" });
  await client.connect();
  try {
    await assert.rejects(client.query("select input from holdfast.work_items"), { code: "42501" });
  } finally {
    await client.end();
  }
});
