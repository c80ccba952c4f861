import assert from "node:assert/strict";
import { after, test } from "node:test";
import { createClient } from "../../src/client/client.ts";
import { isHoldfastError } from "../../src/core/errors.ts";
import { seconds } from "../../src/core/time.ts";
import { defineWork, WorkFailure } from "../../src/work/define.ts";
import { openWork } from "../../src/work/open.ts";
import { legacy } from "../../src/work/policy.ts";
import { createWorker } from "../../src/work/worker.ts";
import { openBench } from "../support/gateway.ts";
import { assertInvariants } from "../support/invariants.ts";
import { until } from "../support/until.ts";

interface Invoice {
  readonly cents: number;
  readonly waits?: boolean;
}

test("W9 W12 G8: what is submitted over HTTP wakes a worker, runs once, is told with its result, and a cancellation reaches its code", async () => {
  const bench = await openBench({ after });
  const client = createClient({ url: bench.gateway().address, token: bench.a.token });
  const ran: string[] = [];
  const pay = defineWork<Invoice, { readonly paid: number }>({
    name: "pay",
    version: "1",
    safety: "provider_keyed",
    policy: legacy(),
    input: {
      "~standard": {
        version: 1,
        vendor: "test",
        validate: (value) =>
          typeof (value as Invoice | null)?.cents === "number"
            ? { value: value as Invoice }
            : { issues: [{ message: "cents is a number" }] },
      },
    },
    async run({ cents, waits }, { id, providerKey, signal }) {
      ran.push(`${id} ${providerKey}`);
      if (waits !== true) return { paid: cents };
      await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
      throw new WorkFailure(
        isHoldfastError(signal.reason, "cancel_requested") ? "stopped_as_asked" : "lost",
        "stopped",
      );
    },
  });
  const work = await openWork({
    database: bench.kernel.settings,
    tenant: bench.a.tenant,
    onError: () => undefined,
  });
  const worker = await createWorker(work, { works: [pay], lease: seconds(6) });
  after(async () => {
    await worker.stop();
    await work.close();
  });
  const [version] = await client.listWorkVersions({ name: "pay" });
  assert.deepEqual([version?.workers, version?.safety], [1, "provider_keyed"]);

  const item = { name: "pay", version: "1", input: { cents: 5 }, key: "invoice-1", provider_key: "inv-1" };
  const { id } = await client.submitWork(item);
  const ended = await until("it has run", async () => {
    const detail = await client.getWork(id);
    return detail.finished_at === null ? null : detail;
  });
  assert.deepEqual([ended.state, ended.attempts, ran], ["succeeded", 1, [`${id} inv-1`]]);
  assert.deepEqual(await client.getWorkPayload(id), {
    input: { cents: 5 },
    result: { paid: 5 },
    late_results: [],
  });
  assert.deepEqual(await client.submitWork(item), { id, duplicate: true, accepted_at: ended.accepted_at });

  // Its shape is checked where it runs: what does not fit fails for good.
  const { id: wrong } = await client.submitWork({ ...item, key: "invoice-2", input: { cents: "five" } });
  const refused = await until("it was refused", async () => {
    const detail = await client.getWork(wrong);
    return detail.failure === null ? null : detail;
  });
  assert.deepEqual(
    [refused.state, refused.failure?.code, refused.attempts],
    ["failed", "invalid_request", 1],
  );

  const { id: slow } = await client.submitWork({
    ...item,
    key: "invoice-3",
    input: { cents: 7, waits: true },
  });
  await until("it runs", async () => (await client.getWork(slow)).lease?.admitted_at ?? null);
  assert.equal((await client.cancelWork(slow, { reason: "paid by hand" })).state, "cancel_pending");
  const stopped = await until("it has stopped", async () => {
    const detail = await client.getWork(slow);
    return detail.finished_at === null ? null : detail;
  });
  assert.deepEqual(
    [stopped.state, stopped.failure?.code, stopped.cancel?.reason],
    ["failed", "stopped_as_asked", "paid by hand"],
  );
  assert.equal(ran.length, 2, "each once");
  // Many at once, of all outcomes, through the worker's own turns: nothing that is always true is broken by them.
  const many = Array.from({ length: 300 }, (_, n) => ({ input: { cents: n % 7 === 0 ? "none" : n } }));
  await client.submitWorkBatch({ name: "pay", version: "1", items: many });
  const finished = "select count(*)::int as n from holdfast.work_history";
  await until("all have ended", async () => (await bench.kernel.ask<{ n: number }>(finished))[0]?.n === 303);
  await worker.stop();
  const unstamped = "select from holdfast.resource_changes where position is null";
  await until("all changes have positions", async () => (await bench.kernel.ask(unstamped)).length === 0);
  await assertInvariants(bench.kernel.database);
});
