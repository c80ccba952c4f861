import { setTimeout as delay } from "node:timers/promises";
import { stampChanges } from "./change.sql.ts";
import type { Lookout } from "./lookout.ts";
import { startLoop, type TurningLoop } from "./loop.ts";
import { type Database, runAlone } from "./postgres/transition.ts";

/** What comes after a batch shares the next one, and its ring: so many times a second at most. */
const gapMs = 20;
const busyFirstMs = 10;
const busyMaxMs = 1_000;

/**
 * Gives committed changes their positions (S6, S14). Every process may run one; an advisory lock lets one of
 * them stamp at a time. Positions follow the commits and not the inserts, so a reader at a position has seen
 * everything up to it, and a transaction that stays open for long delays nobody but itself.
 */
export function startSequencer(options: {
  readonly db: Database;
  readonly lookout: Pick<Lookout, "wait" | "now">;
  readonly batch?: number;
  readonly onError: (error: unknown) => void;
}): TurningLoop {
  const { db, lookout } = options;
  let since = 0;
  let busyMs = busyFirstMs;
  return startLoop({
    onError: options.onError,
    async turn(signal) {
      ({ serial: since } = await lookout.wait("unstamped", signal, { since }));
      if (await stampAll(db, options.batch ?? 500)) {
        busyMs = busyFirstMs;
        await delay(gapMs, undefined, { signal });
        return;
      }
      // Another one is stamping. What it had read by then may not include everything: look again soon.
      await delay(busyMs, undefined, { signal });
      busyMs = Math.min(busyMs * 2, busyMaxMs);
      await lookout.now();
    },
  });
}

/** Stamps what there is, a batch a transaction. False when another process is at it. */
export async function stampAll(db: Database, batch: number): Promise<boolean> {
  for (;;) {
    const { deploymentEpoch: deployment_epoch } = db;
    const { stamped } = await runAlone(db, "dispatcher", stampChanges, { deployment_epoch, batch });
    if (stamped === null) return false;
    // Only a batch that gave positions is worth a ring.
    if (stamped > 0n) db.committed();
    if (stamped < BigInt(batch)) return true;
  }
}
