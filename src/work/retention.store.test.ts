import assert from "node:assert/strict";
import { test } from "node:test";
import { bench, succeeded } from "../../test/support/work-hands.ts";
import { seconds } from "../core/time.ts";
import { legacy } from "./policy.ts";
import { observeWork } from "./turn.store.ts";
import { sweepObservations } from "./work.store.ts";

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
