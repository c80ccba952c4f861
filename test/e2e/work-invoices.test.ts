import assert from "node:assert/strict";
import { test } from "node:test";
import { chargeWork } from "../../examples/work-invoices/charge.ts";
import { startProvider } from "../../examples/work-invoices/provider.ts";
import { isHoldfastError } from "../../src/core/errors.ts";
import { seconds } from "../../src/core/time.ts";
import { submit } from "../../src/work/open.ts";
import { until } from "../support/until.ts";
import { workStand } from "../support/work.ts";

test("W11: each invoice is charged exactly once at a provider that fails and loses answers", async (t) => {
  const { work, worker, ask } = await workStand(t);
  const provider = await startProvider((nth) =>
    nth % 3 === 1 ? "refuse" : nth % 3 === 2 ? "silence" : null,
  );
  t.after(() => provider.close());
  const charge = chargeWork(provider.url, seconds(0.02));
  await work.register(charge);
  await worker({ works: [charge], concurrency: 3 });
  const invoices = Array.from({ length: 20 }, (_, n) => ({ invoice: `i-${n}`, cents: n + 1 }));
  for (const invoice of [...invoices, ...invoices])
    await submit(work, charge, invoice, { key: invoice.invoice });
  await assert.rejects(submit(work, charge, { invoice: "x", cents: -1 }), (error) =>
    isHoldfastError(error, "invalid_request"),
  );
  await until(
    "all of them are settled",
    async () => (await ask("select from holdfast.leases_work")).length === 0,
  );
  const states = await ask<{ state: string; n: number }>(
    "select state, count(*)::int as n from holdfast.work_history group by 1",
  );
  // With this provider two of three requests fail: some invoices may use up their attempts, and say so.
  const succeeded = states.find(({ state }) => state === "succeeded")?.n ?? 0;
  assert.equal(
    states.reduce((sum, { n }) => sum + n, 0),
    20,
  );
  assert.ok(provider.charged.size >= succeeded && provider.charged.size <= 20);
  const paid = await ask<{ cents: number; key: string }>(
    `select (w.input ->> 'cents')::int as cents, w.provider_key as key from holdfast.work_items w
     join holdfast.work_history h using (tenant_id, work_id) where h.state = 'succeeded'`,
  );
  for (const { cents, key } of paid) assert.equal(provider.charged.get(key), cents);
  assert.ok(succeeded >= 15, JSON.stringify(states));
});
