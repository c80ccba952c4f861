import type { BlobStore } from "../core/blob.port.ts";
import { appendChange } from "../core/change.sql.ts";
import type { IncarnationId } from "../core/ids.ts";
import { claimLeases, deleteLease, returnLease } from "../core/lease.store.ts";
import { fenceOf, type HeldLease } from "../core/lease.ts";
import type { Lookout } from "../core/lookout.ts";
import { type Loop, startLoop } from "../core/loop.ts";
import { type Database, type Transaction, transition, view } from "../core/postgres/transition.ts";
import { instant } from "../core/time.ts";
import { markLogArchiveRemoved, readLogArchive } from "../sandboxes/log-archive.store.ts";
import { touchAttempt } from "./attempt.sql.ts";
import { markArtifactRemoved, readEndingArtifact, touchJob } from "./retention.sql.ts";

/**
 * The lease that makes something due for removal when its retention ends: a published artifact by its job's
 * id, an attempt's archived output, in a queue of its own, by the attempt's.
 */
export const retentionKind = "retention";
export const logQueue = "log";

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

type Removal = (options: RetentionOptions, lease: HeldLease, signal: AbortSignal) => Promise<void>;
const removals: ReadonlyMap<string, Removal> = new Map([
  ["default", removeArtifact],
  [logQueue, removeLog],
]);

/** Deletes artifacts and output whose retention has ended, and keeps a tombstone of each (E19, E20). */
export function startRetention(options: RetentionOptions): Loop {
  const { db, lookout, holder, onError } = options;
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

/** The same for the output of an attempt: lines, bytes and digest stay on record, its text is gone. */
async function removeLog(
  { db, blobs }: RetentionOptions,
  lease: HeldLease,
  signal: AbortSignal,
): Promise<void> {
  const { tenant, resource: attempt } = lease;
  const owner = { kind: "execution", id: attempt } as const;
  const archive = await view(db, { role: "retention", tenant, name: "readLogArchive" }, (tx) =>
    readLogArchive(tx, owner),
  );
  if (archive !== undefined && archive.removed_at === null) await blobs.remove(archive.blob_key, signal);
  await underRetention(db, lease, "markLogRemoved", async (tx) => {
    if (await markLogArchiveRemoved(tx, owner)) {
      const { job_id, ordinal, resource_version: version } = await tx.run(touchAttempt, { attempt });
      const body = { job_id, attempt: ordinal };
      const operation = "log.removed";
      await tx.run(appendChange, {
        kind: "attempt",
        resource: attempt,
        root: job_id,
        version,
        operation,
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
