import { setTimeout as delay } from "node:timers/promises";
import { lockSequencer, stampChanges } from "./change.sql.ts";
import type { Lookout } from "./lookout.ts";
import { startLoop, type TurningLoop } from "./loop.ts";
import { type Database, transition } from "./postgres/transition.ts";

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
    const stamped = await stampBatch(db, batch);
    if (stamped === null) return false;
    // Only a batch that gave positions is worth a ring.
    if (stamped > 0n) db.committed();
    if (stamped < BigInt(batch)) return true;
  }
}

function stampBatch(db: Database, batch: number): Promise<bigint | null> {
  const scope = { role: "dispatcher", tenant: null, name: "stamp changes" } as const;
  return transition({ ...db, committed: () => undefined }, scope, async (tx) => {
    // A statement of its own: the snapshot that reads the changes must be younger than the lock.
    const { locked } = await tx.run(lockSequencer, {});
    return locked ? (await tx.run(stampChanges, { batch })).stamped : null;
  });
}
