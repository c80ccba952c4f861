import type { BlobStore } from "../core/blob.port.ts";
import { appendChange } from "../core/change.sql.ts";
import type { IncarnationId } from "../core/ids.ts";
import { claimLeases, deleteLease, returnLease } from "../core/lease.store.ts";
import { fenceOf, type HeldLease } from "../core/lease.ts";
import type { Lookout } from "../core/lookout.ts";
import { type Loop, startLoop } from "../core/loop.ts";
import { type Database, type Transaction, transition, view } from "../core/postgres/transition.ts";
import { instant, seconds } from "../core/time.ts";
import { markLogArchiveRemoved, readLogArchive } from "../sandboxes/log-archive.store.ts";
import * as sql from "./retention.sql.ts";
import { bundleQueue, outputQueue, retentionKind } from "./retention.store.ts";

const batch = 20;
/** A store that does not answer is asked again after a while, not at once. */
const againUs = seconds(60);

export interface SessionRetentionOptions {
  readonly db: Database;
  readonly holder: IncarnationId;
  readonly lookout: Lookout;
  readonly blobs: BlobStore;
  readonly onError: (error: unknown) => void;
}

type Removal = (options: SessionRetentionOptions, lease: HeldLease, signal: AbortSignal) => Promise<void>;
const removals: ReadonlyMap<string, Removal> = new Map([
  [bundleQueue, removeBundles],
  [outputQueue, removeOutput],
]);

/** Deletes the bundles of deleted sessions, and output whose retention has ended; a tombstone of each stays. */
export function startSessionRetention(options: SessionRetentionOptions): Loop {
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
            await underRetention(db, lease, "postponeRetention", (tx) =>
              returnLease(tx, lease, instant(tx.now + againUs)),
            ).catch(onError);
          });
        }
      }
    },
  });
}

/** Bytes first, then the tombstones: cut off in between, the next one finds nothing to delete and goes on. */
async function removeBundles(
  { db, blobs }: SessionRetentionOptions,
  lease: HeldLease,
  signal: AbortSignal,
): Promise<void> {
  const { tenant, resource: session } = lease;
  const scope = { role: "retention", tenant, name: "listBundlesToRemove" } as const;
  const gone = new Set<string>();
  for (;;) {
    const found = await view(db, scope, (tx) => tx.run(sql.listBundlesToRemove, { session }));
    for (const { blob_key: key } of found.filter((bundle) => !gone.has(bundle.blob_key))) {
      await blobs.remove(key, signal);
      gone.add(key);
    }
    const marked = await underRetention(db, lease, "markBundlesRemoved", async (tx) => {
      // Two copies of one bundle that go at once must not both leave it to the other.
      await tx.run(sql.lockRemovals, {});
      const left = await tx.run(sql.listBundlesToRemove, { session });
      if (left.some(({ blob_key: key }) => !gone.has(key))) return false;
      const { resource_version: version } = await tx.run(sql.touchSession, { session });
      const removed = await tx.run(sql.markBundlesRemoved, { session });
      await tx.run(appendChange, {
        kind: "session",
        resource: session,
        root: session,
        version,
        operation: "session.bundles_removed",
        body: { session_id: session, revisions: removed },
      });
      await deleteLease(tx, lease);
      return true;
    });
    if (marked) return;
  }
}

/** The same for the output of an activation: lines, bytes and digest stay on record, its text is gone (E19). */
async function removeOutput(
  { db, blobs }: SessionRetentionOptions,
  lease: HeldLease,
  signal: AbortSignal,
): Promise<void> {
  const { tenant, resource: uid } = lease;
  const owner = { kind: "activation", id: uid } as const;
  const archive = await view(db, { role: "retention", tenant, name: "readLogArchive" }, (tx) =>
    readLogArchive(tx, owner),
  );
  if (archive !== undefined && archive.removed_at === null) await blobs.remove(archive.blob_key, signal);
  await underRetention(db, lease, "markLogRemoved", async (tx) => {
    if (await markLogArchiveRemoved(tx, owner)) {
      const {
        session_id,
        activation_id,
        resource_version: version,
      } = await tx.run(sql.touchActivation, {
        uid,
      });
      await tx.run(appendChange, {
        kind: "activation",
        resource: uid,
        root: session_id,
        version,
        operation: "log.removed",
        body: { session_id, activation_id },
      });
    }
    await deleteLease(tx, lease);
  });
}

function underRetention<T>(
  db: Database,
  lease: HeldLease,
  name: string,
  body: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return transition(db, { role: "retention", tenant: lease.tenant, name, fence: fenceOf(lease) }, body);
}
