import { whileThereIsMore } from "../core/ledger-sweep.ts";
import { type Database, transition } from "../core/postgres/transition.ts";
import type { Microseconds } from "../core/time.ts";
import { removeFinishedWork } from "./retention.sql.ts";
import { sweepObservations } from "./work.store.ts";

/** How long what is over is kept. The database keeps all of it a day at least. */
export interface WorkRetention {
  /**
   * A finished item, from its end on, with its attempts, proofs and payload. Its id and key are free again
   * afterwards. Null: for ever.
   */
  readonly finished: Microseconds | null;
  /** Quarantined results, by the policy that each carries (W6). One whose policy is not named here is kept for ever. */
  readonly observations: ReadonlyMap<string, Microseconds>;
}

const batch = 500n;

/** Removes what has had its time, a bounded batch a transaction, over all tenants. */
export async function sweepWork(db: Database, retention: WorkRetention, signal: AbortSignal): Promise<void> {
  const { observations, finished: keep_us } = retention;
  if (observations.size > 0) {
    await whileThereIsMore(
      signal,
      async () => (await sweepObservations(db, observations, Number(batch))) === Number(batch),
    );
  }
  if (keep_us === null) return;
  let skip = 0n;
  await whileThereIsMore(signal, async () => {
    const scope = { role: "retention", tenant: null, name: "sweepWork" } as const;
    const { removed, kept } = await transition(db, scope, (tx) =>
      tx.run(removeFinishedWork, { keep_us, skip, batch }),
    );
    skip += kept;
    return removed + kept === batch;
  });
}
