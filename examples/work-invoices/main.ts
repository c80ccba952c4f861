/** `node examples/work-invoices/main.ts`: twenty invoices, a provider that fails half of the time, one charge each. */
import { startTestServer } from "../../src/dev/testing.ts";
import { createWorker, openWork, seconds, submit } from "../../src/work/sdk.ts";
import { chargeWork } from "./charge.ts";
import { startProvider } from "./provider.ts";

const server = await startTestServer({ tenants: ["shop"] });
const provider = await startProvider((nth) => (nth % 4 === 1 ? "refuse" : nth % 4 === 2 ? "silence" : null));
const work = await openWork({ database: server.database, tenant: "shop", name: "invoices" });
const charge = chargeWork(provider.url, seconds(0.2));
const worker = await createWorker(work, { works: [charge], concurrency: 5 });
for (let n = 1; n <= 20; n += 1) {
  const invoice = `2026-${String(n).padStart(3, "0")}`;
  // The same invoice again is the same item: its key says so.
  await submit(work, charge, { invoice, cents: 100 * n }, { key: `invoice-${invoice}` });
}
while ((await server.query("select from holdfast.leases_work limit 1")).length > 0) {
  await new Promise((resolve) => setTimeout(resolve, 100));
}
const rows = await server.query<{ state: string; attempts: number; items: string }>(
  "select state, attempts, count(*) as items from holdfast.work_history group by 1, 2 order by 1, 2",
);
for (const row of rows) console.log(`${row.items} ${row.state} after ${row.attempts} attempt(s)`);
console.log(`${provider.requests()} requests, ${provider.charged.size} charges`);
await worker.stop();
await work.close();
await provider.close();
await server.stop();
