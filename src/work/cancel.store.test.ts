import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { workStand } from "../../test/support/work.ts";
import { isHoldfastError } from "../core/errors.ts";
import { monotonicMs } from "../core/monotonic.ts";
import { seconds, toMilliseconds } from "../core/time.ts";
import { defineWork, WorkFailure } from "./define.ts";
import { submit } from "./open.ts";
import { legacy } from "./policy.ts";
import { cancelWork, inspectWork } from "./work.store.ts";

const lease = seconds(6);

test("G8 W11: a cancellation reaches the handler that runs, with its reason, within one renewal; its word still counts", async (t) => {
  const { worker, work, tenant, ask, errors } = await workStand(t);
  const heard = new Map<string, { readonly reason: unknown; readonly atMs: number }>();
  const slow = defineWork<unknown, string>({
    name: "slow",
    version: "1",
    safety: "manual_resolution",
    policy: legacy(),
    async run(input, { id, signal }) {
      await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
      heard.set(id, { reason: signal.reason, atMs: monotonicMs() });
      if (input === "stops") throw new WorkFailure("stopped", "as it was asked to");
      return "was nearly done";
    },
  });
  await work.register(slow);
  await worker({ works: [slow], lease, concurrency: 3 });
  const [ends, stops, other] = [
    (await submit(work, slow, "ends")).id,
    (await submit(work, slow, "stops")).id,
    (await submit(work, slow, "other")).id,
  ];
  const running = () => ask("select from holdfast.leases_work where work_state = 'permitted'");
  await until("all of them run", async () => (await running()).length === 3);
  const askedMs = monotonicMs();
  for (const id of [ends, stops])
    assert.equal(
      await cancelWork(work.db, { tenant, work: id, by: "ops", reason: "not wanted" }),
      "cancel_pending",
    );
  await until("both have ended", async () => (await running()).length === 1 && heard.size === 2);
  for (const id of [ends, stops]) {
    const { reason, atMs } = heard.get(id) ?? { atMs: Number.POSITIVE_INFINITY };
    assert.ok(isHoldfastError(reason, "cancel_requested"), String(reason));
    assert.ok(atMs - askedMs < toMilliseconds(lease), `heard of it after ${atMs - askedMs} ms`);
  }
  await until("both are history", async () => (await ask("select from holdfast.work_history")).length === 2);
  const state = async (id: string) => {
    const { item } = await inspectWork(work.db, tenant, id);
    return [item.state, item.failure_code];
  };
  assert.deepEqual(await state(ends), ["succeeded_after_cancel_requested", null]);
  assert.deepEqual(await state(stops), ["failed", "stopped"]);
  assert.deepEqual(await state(other), ["permitted", null], "nobody asked for its end");
  assert.deepEqual(
    await ask("select from holdfast.work_observations"),
    [],
    "their leases were kept to the end",
  );
  await cancelWork(work.db, { tenant, work: other, by: "ops", reason: "the test ends" });
  await until("it has ended", async () => (await ask("select from holdfast.work_history")).length === 3);
  assert.deepEqual(errors, []);
});
