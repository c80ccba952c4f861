import type { SandboxId } from "../core/ids.ts";
import { insertLease } from "../core/lease.store.ts";
import type { HeldLease } from "../core/lease.ts";
import type { Database } from "../core/postgres/transition.ts";
import { instant, type Microseconds } from "../core/time.ts";
import { deleteLogChunks as deleteChunks } from "../sandboxes/log-archive.sql.ts";
import * as archives from "../sandboxes/log-archive.store.ts";
import type { LogArchive } from "../sandboxes/log-archive.ts";
import { retentionKind } from "../sandboxes/retention.ts";
import { recordEvent, underLease } from "./attempt.store.ts";
import { logQueue } from "./retention.ts";

/**
 * The blob is there, whole: from this commit on readers read it instead of the chunks, and it becomes due for
 * removal when its retention ends.
 */
export function recordLogArchive(
  db: Database,
  lease: HeldLease,
  archive: LogArchive & { readonly lines: bigint },
  retentionUs: Microseconds,
): Promise<void> {
  return underLease(db, lease, "recordLogArchive", async (tx) => {
    const attempt = lease.resource;
    const owner = { kind: "execution", id: attempt } as const;
    if (!(await archives.recordLogArchive(tx, owner, archive, retentionUs))) return;
    const dueAt = instant(tx.now + retentionUs);
    await insertLease(tx, { kind: retentionKind, queue: logQueue, resource: attempt, dueAt });
    await recordEvent(tx, attempt, "log.archived", { lines: Number(archive.lines) });
  });
}

/** All chunks of one sandbox. The database refuses it while they are in no archive. */
export function deleteLogChunks(db: Database, lease: HeldLease, sandbox: SandboxId): Promise<void> {
  return underLease(db, lease, "deleteLogChunks", async (tx) => {
    await tx.run(deleteChunks, { sandbox });
  });
}
