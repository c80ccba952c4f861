import { appendChange } from "../core/change.sql.ts";
import { deleteLease } from "../core/lease.store.ts";
import type { HeldLease } from "../core/lease.ts";
import { view } from "../core/postgres/transition.ts";
import { markLogArchiveRemoved, readLogArchive } from "../sandboxes/log-archive.store.ts";
import { type Removal, type Retention, underRetention } from "../sandboxes/retention.ts";
import * as sql from "./retention.sql.ts";
import { bundleQueue, outputQueue } from "./retention.store.ts";
import { recordEvent } from "./run.store.ts";

/** Deletes the bundles of deleted sessions, and output whose retention has ended; a tombstone of each stays. */
export const sessionRemovals: ReadonlyMap<string, Removal> = new Map([
  [bundleQueue, removeBundles],
  [outputQueue, removeOutput],
]);

async function removeBundles({ db, blobs }: Retention, lease: HeldLease, signal: AbortSignal): Promise<void> {
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
async function removeOutput({ db, blobs }: Retention, lease: HeldLease, signal: AbortSignal): Promise<void> {
  const { tenant, resource: uid } = lease;
  const owner = { kind: "activation", id: uid } as const;
  const archive = await view(db, { role: "retention", tenant, name: "readLogArchive" }, (tx) =>
    readLogArchive(tx, owner),
  );
  if (archive !== undefined && archive.removed_at === null) await blobs.remove(archive.blob_key, signal);
  await underRetention(db, lease, "markLogRemoved", async (tx) => {
    if (await markLogArchiveRemoved(tx, owner)) {
      await recordEvent(tx, uid, "log.removed", {});
    }
    await deleteLease(tx, lease);
  });
}
