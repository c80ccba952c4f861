import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { workStand } from "../../test/support/work.ts";
import { instant, seconds } from "../core/time.ts";
import { controlClock } from "../dev/testing.ts";
import { defineWork } from "./define.ts";
import { submit, submitAll } from "./open.ts";
import { deadlineOnly, legacy } from "./policy.ts";
import { inspectWork } from "./work.store.ts";

test("W5: what is submitted runs once, and its history says under which permit", async (t) => {
  const { worker, work, ask, errors } = await workStand(t);
  const ran: string[] = [];
  const greet = defineWork({
    name: "greet",
    version: "1",
    safety: "idempotent",
    policy: legacy(),
    run: (input: { readonly name: string }, { id }) => {
      ran.push(id);
      return { said: `hello ${input.name}` };
    },
  });
  await work.register(greet);
  const { id } = await submit(work, greet, { name: "you" });
  const many = await submitAll(
    work,
    greet,
    Array.from({ length: 1200 }, (_, n) => ({ input: { name: `n${n}` } })),
  );
  await worker({ works: [greet], concurrency: 20 });
  await until("all of it has run", async () => (await ask("select from holdfast.leases_work")).length === 0);
  assert.deepEqual(new Set(ran), new Set([id, ...many.map((one) => one.id)]));
  assert.equal(ran.length, 1201);
  const [row] = await ask(
    "select state, attempts, result, holder is not null as held, permit_admitted_at is not null as admitted from holdfast.work_history where work_id = $1",
    [id],
  );
  assert.deepEqual(row, {
    state: "succeeded",
    attempts: 1,
    result: { said: "hello you" },
    held: true,
    admitted: true,
  });
  assert.deepEqual(errors, []);
});

test("W5: what has been done has been done, also when its result can't be kept as it is: the place is told, and none is stored", async (t) => {
  const { worker, work, ask, errors } = await workStand(t);
  const results: readonly unknown[] = [
    { rows: new Map([["a", 1]]) },
    { total: 5n },
    { text: ["fine", "\0"] },
    () => 1,
    "x".repeat(300_000),
    undefined,
    { at: new Date(0), left: undefined },
  ];
  const give = defineWork<number, unknown>({
    name: "give",
    version: "1",
    safety: "manual_resolution",
    policy: legacy(),
    run: (n) => results[n],
  });
  await work.register(give);
  const ids = await submitAll(
    work,
    give,
    results.map((_, input) => ({ input })),
  );
  await worker({ works: [give] });
  const ended = () =>
    ask<{ work_id: string; state: string; result: unknown }>("select * from holdfast.work_history");
  await until("all of it has ended", async () => (await ended()).length === results.length);
  const byId = new Map((await ended()).map((row) => [row.work_id, row]));
  assert.deepEqual(
    ids.map(({ id }) => [byId.get(id)?.state, byId.get(id)?.result]),
    results.map((_, n) => ["succeeded", n === 6 ? { at: "1970-01-01T00:00:00.000Z" } : null]),
  );
  const told = errors.map((text) =>
    text.replace(/^the result of give [0-9a-f-]{36} could not be stored: /, ""),
  );
  for (const place of [
    "result.rows is a Map",
    "result.total is a bigint",
    "result.text[1] has the",
    "result is a function",
    "result is larger",
  ])
    assert.equal(told.filter((text) => text.startsWith(place)).length, 1, place);
  assert.equal(told.length, 5);
});

test("W5: a handler that blocks the event loop for longer than its lease keeps it", async (t) => {
  const { worker, work, ask, errors } = await workStand(t);
  const block = defineWork<unknown, void>({
    name: "block",
    version: "1",
    safety: "manual_resolution",
    policy: legacy(),
    run() {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 9_000);
    },
  });
  await work.register(block);
  await submit(work, block, {});
  await worker({ works: [block], lease: seconds(6) });
  await until(
    "it has ended",
    async () => (await ask("select from holdfast.work_history where state = 'succeeded'")).length === 1,
    40_000,
  );
  assert.deepEqual(await ask("select from holdfast.work_observations"), []);
  assert.deepEqual(errors, []);
});

test("W10: the signal aborts at the deadline, and what comes after it is quarantined", async (t) => {
  const { worker, work, ask, tenant } = await workStand(t);
  // The database's time stands still, so the deadline passes in the handler, however slow the machine is: the
  // worker counts what is left by its own clock.
  const clock = await controlClock(ask);
  const deadline = instant(clock.now() + seconds(2));
  const aborted: string[] = [];
  const slow = defineWork<unknown, void>({
    name: "slow",
    version: "1",
    safety: "idempotent",
    policy: deadlineOnly(),
    async run(_, { signal, id }) {
      await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
      aborted.push(id);
      await clock.set(deadline);
    },
  });
  await work.register(slow);
  const { id } = await submit(work, slow, {}, { deadline });
  await worker({ works: [slow], retention: "a-year" });
  await until(
    "its late success is kept",
    async () => (await ask("select from holdfast.work_observations")).length === 1,
  );
  await until("nobody knows", async () => (await ask("select from holdfast.work_suspensions")).length === 1);
  const { item, observations } = await inspectWork(work.db, tenant, id);
  assert.deepEqual(
    [aborted, item.state, item.execution_admission_closed_reason],
    [[id], "suspended", "deadline_elapsed"],
  );
  assert.deepEqual(
    [observations[0]?.reason, observations[0]?.retention_policy],
    ["deadline_elapsed", "a-year"],
  );
});

test("W5: a worker that stops gives back what it has not started, and waits for what runs", async (t) => {
  const { worker, work, ask } = await workStand(t);
  let finish = () => {};
  const held = new Promise<void>((resolve) => {
    finish = resolve;
  });
  let most = 0;
  const wait = defineWork<unknown, void>({
    name: "wait",
    version: "1",
    safety: "idempotent",
    policy: legacy(),
    run: () => held,
  });
  await work.register(wait);
  await submitAll(
    work,
    wait,
    Array.from({ length: 40 }, () => ({ input: 0 })),
  );
  const running = await worker({ works: [wait], concurrency: 3 });
  await until("as many run as may", () => {
    most = Math.max(most, running.inFlight);
    return running.inFlight === 3;
  });
  const stopped = running.stop();
  finish();
  await stopped;
  assert.equal(most, 3);
  const rows = await ask(
    "select work_state, holder, count(*)::int as n, min(attempt)::int as attempt from holdfast.leases_work group by 1, 2",
  );
  assert.deepEqual(rows, [{ work_state: "pending", holder: null, n: 37, attempt: 0 }]);
});

test("W7: what is submitted without any ring is found within an interval", async (t) => {
  const { worker, work, ask } = await workStand(t);
  const note = defineWork<unknown, null>({
    name: "note",
    version: "1",
    safety: "idempotent",
    policy: legacy(),
    run: () => null,
  });
  await worker({ works: [note] });
  await submit(work.db.pools.of("producer"), note, 1, { tenant: "acme" });
  await until("it has run", async () => (await ask("select from holdfast.work_history")).length === 1, 5_000);
});
