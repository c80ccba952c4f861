import { HoldfastError } from "../core/errors.ts";
import type { SandboxId } from "../core/ids.ts";
import { deleteLease, insertLease, underLease } from "../core/lease.store.ts";
import type { HeldLease } from "../core/lease.ts";
import { type Database, view } from "../core/postgres/transition.ts";
import { instant, type Microseconds } from "../core/time.ts";
import { deleteLogChunks } from "../sandboxes/log-archive.sql.ts";
import * as archives from "../sandboxes/log-archive.store.ts";
import type { LogArchive } from "../sandboxes/log-archive.ts";
import { retentionKind } from "../sandboxes/retention.ts";
import { listSandboxes } from "../sandboxes/sandbox.store.ts";
import type { ActivationState } from "./activation.ts";
import * as sql from "./clean.sql.ts";
import type { CleaningSnapshot } from "./cleaning.ts";
import { outputQueue } from "./retention.store.ts";
import { lockRun } from "./run.sql.ts";
import { recordEvent } from "./run.store.ts";

/** Everything that decides what is removed next. */
export function readCleaning(db: Database, lease: HeldLease): Promise<CleaningSnapshot> {
  const { tenant, resource: uid } = lease;
  const owner = { kind: "activation", id: uid } as const;
  return view(db, { role: "controller", tenant, name: "readCleaning" }, async (tx) => {
    const row = await tx.run(sql.readEnd, { uid });
    if (row === undefined) throw new HoldfastError("not_found", "there is no such activation");
    return {
      session: row.session_id,
      state: row.state as ActivationState, // a check constraint holds the column to these
      sandboxes: await listSandboxes(tx, tenant, owner),
      lost: await tx.run(sql.listLostCandidates, { uid }),
      output: await archives.readOutputState(tx, owner),
    };
  });
}

/** Its bytes are gone. */
export function recordCandidateRemoved(
  db: Database,
  lease: HeldLease,
  candidate: Pick<sql.ListLostCandidatesRow, "sandbox_id" | "sha256">,
): Promise<void> {
  const uid = lease.resource;
  return underLease(db, lease, "candidate.removed", async (tx) => {
    await tx.run(lockRun, { uid });
    const { sandbox_id: sandbox, sha256 } = candidate;
    if ((await tx.run(sql.markCandidateRemoved, { uid, sandbox, sha256 })) === 1) {
      await recordEvent(tx, uid, "candidate.removed", { sha256 });
    }
  });
}

/** The blob is there, whole: from this commit on readers read it, and it becomes due for removal in its time (E19). */
export function recordOutputArchive(
  db: Database,
  lease: HeldLease,
  archive: LogArchive & { readonly lines: bigint },
  retentionUs: Microseconds,
): Promise<void> {
  const uid = lease.resource;
  return underLease(db, lease, "recordOutputArchive", async (tx) => {
    const owner = { kind: "activation", id: uid } as const;
    if (!(await archives.recordLogArchive(tx, owner, archive, retentionUs))) return;
    const dueAt = instant(tx.now + retentionUs);
    await insertLease(tx, { kind: retentionKind, queue: outputQueue, resource: uid, dueAt });
    await recordEvent(tx, uid, "log.archived", { lines: Number(archive.lines) });
  });
}

/** All chunks of one sandbox. The database refuses it while they are in no archive. */
export function deleteOutputChunks(db: Database, lease: HeldLease, sandbox: SandboxId): Promise<void> {
  return underLease(db, lease, "deleteLogChunks", async (tx) => {
    await tx.run(deleteLogChunks, { sandbox });
  });
}

/**
 * Nothing of it is left to remove now: marked when it has ended, and its lease goes. False: it moved on meanwhile, and
 * there may be more.
 */
export function finishCleaning(db: Database, lease: HeldLease, seen: CleaningSnapshot): Promise<boolean> {
  const uid = lease.resource;
  return underLease(db, lease, "finishCleaning", async (tx) => {
    const row = await tx.run(lockRun, { uid });
    if (row?.state !== seen.state) return false;
    if ((await tx.run(sql.markCleaned, { uid })) === 1) await recordEvent(tx, uid, "activation.cleaned", {});
    await deleteLease(tx, lease);
    return true;
  });
}
