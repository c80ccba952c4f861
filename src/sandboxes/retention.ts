import type { BlobStore } from "../core/blob.port.ts";
import type { IncarnationId } from "../core/ids.ts";
import { claimLeases, returnLease } from "../core/lease.store.ts";
import { fenceOf, type HeldLease } from "../core/lease.ts";
import type { Lookout } from "../core/lookout.ts";
import { type Loop, startLoop } from "../core/loop.ts";
import { type Database, type Transaction, transition } from "../core/postgres/transition.ts";
import { instant, seconds } from "../core/time.ts";

/** The lease that makes something due for removal when its retention ends. Its queue says what kind of thing. */
export const retentionKind = "retention";

const batch = 20;
/** A store that does not answer is asked again after a while, not at once. */
const againUs = seconds(60);

export interface Retention {
  readonly db: Database;
  readonly blobs: BlobStore;
}

/**
 * Removes what the lease is about and deletes the lease. Bytes first, then the tombstone: cut off in between, the
 * next one finds nothing to delete and goes on.
 */
export type Removal = (retention: Retention, lease: HeldLease, signal: AbortSignal) => Promise<void>;

/** Removes what has had its time, by the removal of its queue. */
export function startRetention(
  options: Retention & {
    readonly holder: IncarnationId;
    readonly lookout: Lookout;
    readonly removals: ReadonlyMap<string, Removal>;
    readonly onError: (error: unknown) => void;
  },
): Loop {
  const { db, lookout, holder, removals, onError } = options;
  let since = 0;
  return startLoop({
    onError,
    async turn(signal) {
      const seen = await lookout.wait(`due:${retentionKind}`, signal, { since });
      since = seen.serial;
      for (const queue of seen.queues) {
        const remove = removals.get(queue);
        if (remove === undefined) continue;
        const claim = { kind: retentionKind, queue, holder, limit: batch, quota: batch } as const;
        for (const lease of await claimLeases(db, claim)) {
          signal.throwIfAborted();
          await remove(options, lease, signal).catch(async (error: unknown) => {
            onError(error);
            await postpone(db, lease).catch(onError);
          });
        }
      }
    },
  });
}

function postpone(db: Database, lease: HeldLease): Promise<void> {
  return underRetention(db, lease, "postponeRetention", (tx) =>
    returnLease(tx, lease, instant(tx.now + againUs)),
  );
}

/** A transition under the lease of a removal. */
export function underRetention<T>(
  db: Database,
  lease: HeldLease,
  name: string,
  body: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return transition(db, { role: "retention", tenant: lease.tenant, name, fence: fenceOf(lease) }, body);
}
