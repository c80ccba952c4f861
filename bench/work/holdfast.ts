import {
  createWorker,
  defineWork,
  type EffectSafety,
  legacy,
  openWork,
  submit,
  submitAll,
} from "../../src/work/sdk.ts";
import type { Counter, OpenEngine } from "./engine.ts";

/** Holdfast with a permit for each attempt, fencing, history and forced row-level security. */
export const holdfast =
  (safety: Exclude<EffectSafety, "reconcile_before_retry">): OpenEngine =>
  async (database) => {
    const work = await openWork({ database, tenant: "bench", name: "bench", limits: { connectionsMax: 20 } });
    let counter: Counter | undefined;
    const noop = defineWork<{ readonly n: number }, void>({
      name: `noop-${safety.replaceAll("_", "-")}`,
      version: "1",
      safety,
      policy: legacy(),
      run: () => {
        counter?.enter();
        counter?.leave();
      },
    });
    await work.register(noop);
    return {
      name: `holdfast ${safety}`,
      submitAll: async (count) => {
        for (let from = 0; from < count; from += 5_000) {
          const length = Math.min(5_000, count - from);
          await submitAll(
            work,
            noop,
            Array.from({ length }, (_, n) => ({ input: { n } })),
          );
        }
      },
      submit: async () => void (await submit(work, noop, { n: 0 })),
      async run(concurrency, count) {
        counter = count;
        const worker = await createWorker(work, { works: [noop], concurrency });
        return () => worker.stop();
      },
      waiting: "select count(*)::int as n from holdfast.leases_work",
      close: () => work.close(),
    };
  };
