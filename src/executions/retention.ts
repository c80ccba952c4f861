import { appendChange } from "../core/change.sql.ts";
import { deleteLease } from "../core/lease.store.ts";
import type { HeldLease } from "../core/lease.ts";
import { view } from "../core/postgres/transition.ts";
import { markLogArchiveRemoved, readLogArchive } from "../sandboxes/log-archive.store.ts";
import { type Removal, type Retention, underRetention } from "../sandboxes/retention.ts";
import { touchAttempt } from "./attempt.sql.ts";
import { markArtifactRemoved, readEndingArtifact, touchJob } from "./retention.sql.ts";

/** Of an attempt's archived output, by the attempt's id. A published artifact is in the default queue, by its job's. */
export const logQueue = "log";

/** Deletes artifacts and output whose retention has ended, and keeps a tombstone of each (E19, E20). */
export const executionRemovals: ReadonlyMap<string, Removal> = new Map([
  ["default", removeArtifact],
  [logQueue, removeLog],
]);

async function removeArtifact(
  { db, blobs }: Retention,
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
async function removeLog({ db, blobs }: Retention, lease: HeldLease, signal: AbortSignal): Promise<void> {
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
