import type * as Sdk from "../../src/work/sdk.ts";
import type { Counter, OpenEngine } from "./engine.ts";

const chunk = 5_000;

/**
 * Holdfast with a permit for each attempt, fencing, history and forced row-level security. `file` is the bundled
 * package; with `tenants` each has its share of the items.
 */
export const holdfast =
  (
    file: string,
    safety: Exclude<Sdk.EffectSafety, "reconcile_before_retry">,
    tenants: readonly string[] = ["bench"],
  ): OpenEngine =>
  async (database) => {
    const sdk = (await import(file)) as typeof Sdk; // what bundle.ts made of it
    const [tenant = "bench"] = tenants;
    const work = await sdk.openWork({ database, tenant, name: "bench", limits: { connectionsMax: 20 } });
    let counter: Counter | undefined;
    const noop = sdk.defineWork<{ readonly n: number }, void>({
      name: `noop-${safety.replaceAll("_", "-")}`,
      version: "1",
      safety,
      policy: sdk.legacy(),
      run: () => {
        counter?.enter();
        counter?.leave();
      },
    });
    await work.register(noop);
    return {
      name: `holdfast ${safety}`,
      submitAll: async (count) => {
        const share = Math.ceil(count / tenants.length);
        for (const one of tenants) {
          for (let from = 0; from < share; from += chunk) {
            const length = Math.min(chunk, share - from);
            const items = Array.from({ length }, (_, n) => ({ input: { n } }));
            await sdk.submitAll(work, noop, items, { tenant: one });
          }
        }
      },
      submit: async () => void (await sdk.submit(work, noop, { n: 0 })),
      async run(concurrency, count) {
        counter = count;
        const worker = await sdk.createWorker(work, { works: [noop], concurrency });
        return () => worker.stop();
      },
      // By index: it is asked again and again, also beside a million rows that are due later.
      waiting: `select count(*)::int as n from holdfast.leases_work where due_at <= now()
        and queue = (select version_number || '.default' from holdfast.work_versions where name = '${noop.name}')`,
      close: () => work.close(),
    };
  };
