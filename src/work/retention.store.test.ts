import assert from "node:assert/strict";
import { test } from "node:test";
import { bench, succeeded } from "../../test/support/work-hands.ts";
import { seconds } from "../core/time.ts";
import { submit } from "./open.ts";
import { legacy } from "./policy.ts";
import { sweepWork } from "./retention.ts";
import { observeWork } from "./turn.store.ts";
import { cancelWork, disableTenant, sweepObservations } from "./work.store.ts";

test("W6: a quarantined result is kept as long as its policy says, and for ever without one", async (t) => {
  const { give, hands, lose, work, clock, ask } = await bench(t, { policy: legacy() });
  const zombie = hands();
  for (const policy of ["short", "long", null]) {
    await give();
    const item = await zombie.permit();
    await lose();
    const { unmatched } = await zombie.done(item, succeeded());
    const [one] = unmatched;
    assert.ok(one);
    assert.equal(await observeWork(work.db, zombie.holder, one, policy), "quarantined");
    // Nothing of it is due again in this test.
    await ask("delete from holdfast.leases_work");
  }
  const day = 86_400;
  const policies = new Map([
    ["short", seconds(1)],
    ["long", seconds(10 * day)],
  ]);
  const kept = async () =>
    (
      await ask<{ p: string | null }>(
        "select retention_policy as p from holdfast.work_observations order by 1",
      )
    ).map(({ p }) => p);
  assert.equal(await sweepObservations(work.db, policies), 0, "nothing that is younger than a day");
  await clock.advance(seconds(2 * day));
  assert.equal(await sweepObservations(work.db, policies), 1);
  assert.deepEqual(await kept(), ["long", null]);
  await clock.advance(seconds(9 * day));
  assert.equal(await sweepObservations(work.db, policies), 1);
  assert.deepEqual(await kept(), [null]);
});

test("W9 W12: finished work goes with all that is said of it when its time has come, but for items with a late result", async (t) => {
  const one = await bench(t, { policy: legacy({ initial: seconds(1) }) });
  const { give, hands, lose, work, clock, ask, tenant } = one;
  const counts = async () => {
    const [row] = await ask<Record<string, number>>(
      `select (select count(*)::int from holdfast.work_items) as items, (select count(*)::int from holdfast.work_history) as history,
         (select count(*)::int from holdfast.work_attempts) as attempts, (select count(*)::int from holdfast.work_cancels) as cancels,
         (select count(*)::int from holdfast.work_observations) as late`,
    );
    return row;
  };
  const done = async () => {
    const worker = hands();
    await worker.done(await worker.permit(), succeeded());
  };
  const key = { key: "invoice-1" };
  const first = await give(key);
  await done();
  await cancelWork(work.db, { tenant, work: await give(), by: "ops", reason: "twice" });
  // One with a late result: it stays as long as that does.
  await give();
  const zombie = hands();
  const item = await zombie.permit();
  await lose();
  const [unmatched] = (await zombie.done(item, succeeded())).unmatched;
  assert.ok(unmatched);
  await observeWork(work.db, zombie.holder, unmatched, "late");
  await clock.advance(seconds(60));
  await done();
  await ask("insert into holdfast.tenants (tenant_id) values ('third')");
  await ask(
    `insert into holdfast.work_history (tenant_id, work_id, state, attempts, finished_at)
     select 'third', gen_random_uuid(), 'succeeded', 0, holdfast.work_execution_now() from generate_series(1, 1200)`,
  );
  const sweep = (days: number, late?: number) =>
    sweepWork(
      work.db,
      {
        finished: seconds(days * 86_400),
        observations: new Map(late === undefined ? [] : [["late", seconds(late * 86_400)]]),
      },
      new AbortController().signal,
    );
  const all = { items: 3, history: 1203, attempts: 1, cancels: 1, late: 1 };
  assert.deepEqual(await counts(), all);
  await sweep(0);
  assert.deepEqual(await counts(), all, "nothing that ended within a day, whatever is asked");
  await clock.advance(seconds(5 * 86_400));
  await give();
  await sweep(7);
  assert.deepEqual(await counts(), { ...all, items: 4 }, "its time has not come");
  await sweep(4);
  assert.deepEqual(await counts(), { items: 2, history: 1, attempts: 1, cancels: 0, late: 1 });
  assert.equal((await submit(work, one.work1, {}, key)).duplicate, false, "its key is free again");
  await sweep(4, 4);
  assert.deepEqual(await counts(), { items: 2, history: 0, attempts: 0, cancels: 0, late: 0 });
  assert.notEqual(first, "");
  assert.equal(await disableTenant(work.db, tenant), 2n, "what has not finished is there");
});
