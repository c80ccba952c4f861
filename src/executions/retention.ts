import type { BlobStore } from "../core/blob.port.ts";
import { appendChange } from "../core/change.sql.ts";
import type { IncarnationId } from "../core/ids.ts";
import { claimLeases, deleteLease, returnLease } from "../core/lease.store.ts";
import { fenceOf, type HeldLease } from "../core/lease.ts";
import type { Lookout } from "../core/lookout.ts";
import { type Loop, startLoop } from "../core/loop.ts";
import { type Database, type Transaction, transition, view } from "../core/postgres/transition.ts";
import { instant } from "../core/time.ts";
import { markArtifactRemoved, readEndingArtifact, touchJob } from "./retention.sql.ts";

/** The lease that makes a published artifact due when its retention ends: its job's id. */
export const retentionKind = "retention";

const batch = 20;
/** A store that does not answer is asked again after a while, not at once. */
const againUs = 60_000_000n;

export interface RetentionOptions {
  readonly db: Database;
  readonly holder: IncarnationId;
  readonly lookout: Lookout;
  readonly blobs: BlobStore;
  readonly onError: (error: unknown) => void;
}

/** Deletes artifacts whose retention has ended, and keeps a tombstone of each (E20). */
export function startRetention(options: RetentionOptions): Loop {
  const { db, lookout, holder, onError } = options;
  let since = 0;
  return startLoop({
    onError,
    async turn(signal) {
      const seen = await lookout.wait(`due:${retentionKind}`, signal, { since });
      since = seen.serial;
      const leases = await claimLeases(db, { kind: retentionKind, holder, limit: batch, quota: batch });
      for (const lease of leases) {
        signal.throwIfAborted();
        await removeArtifact(options, lease, signal).catch(async (error: unknown) => {
          onError(error);
          await postpone(db, lease).catch(onError);
        });
      }
    },
  });
}

/** Bytes first, then the tombstone: cut off in between, the next one finds nothing to delete and goes on. */
async function removeArtifact(
  { db, blobs }: RetentionOptions,
  lease: HeldLease,
  signal: AbortSignal,
): Promise<void> {
  const { tenant, resource: job } = lease;
  const artifact = await view(db, { role: "retention", tenant, name: "readEndingArtifact" }, (tx) =>
    tx.run(readEndingArtifact, { job }),
  );
  if (artifact !== undefined && artifact.removed_at === null) await blobs.remove(artifact.blob_key, signal);
  await underRetention(db, lease, "markArtifactRemoved", async (tx) => {
    if ((await tx.run(markArtifactRemoved, { job })) === 1) {
      const { resource_version: version } = await tx.run(touchJob, { job });
      const body = { artifact: artifact?.name };
      await tx.run(appendChange, {
        kind: "job",
        resource: job,
        root: job,
        version,
        operation: "artifact.removed",
        body,
      });
    }
    await deleteLease(tx, lease);
  });
}

function postpone(db: Database, lease: HeldLease): Promise<void> {
  return underRetention(db, lease, "postponeRetention", (tx) =>
    returnLease(tx, lease, instant(tx.now + againUs)),
  );
}

function underRetention<T>(
  db: Database,
  lease: HeldLease,
  name: string,
  body: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return transition(db, { role: "retention", tenant: lease.tenant, name, fence: fenceOf(lease) }, body);
}
