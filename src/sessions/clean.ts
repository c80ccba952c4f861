import { archiveOutput } from "../sandboxes/archive-output.ts";
import { removeSandboxes } from "../sandboxes/reconcile.ts";
import {
  deleteOutputChunks,
  finishCleaning,
  recordCandidateRemoved,
  recordOutputArchive,
} from "./clean.store.ts";
import { type CleaningSnapshot, type CleaningStep, cleaningSteps } from "./cleaning.ts";
import type { SessionAttendance } from "./context.ts";

/** Do all of it. Each deletion of something gone is success, so it may be cut off anywhere (E14). */
export async function cleanActivation(
  attendance: SessionAttendance,
  view: CleaningSnapshot,
): Promise<"done" | "again"> {
  let done = false;
  for (const step of cleaningSteps(view)) done = await clean(attendance, view, step);
  return done ? "done" : "again";
}

/** Gives whether nothing is left to attend to. */
async function clean(
  attendance: SessionAttendance,
  view: CleaningSnapshot,
  step: CleaningStep,
): Promise<boolean> {
  const { context, lease, signal } = attendance;
  const { db, blobs } = context;
  switch (step) {
    case "remove":
      await removeSandboxes(attendance, view.sandboxes);
      for (const candidate of view.lost) {
        await blobs.remove(candidate.blob_key, signal);
        await recordCandidateRemoved(db, lease, candidate);
      }
      return false;
    case "archive": {
      const { tenant, resource: uid } = lease;
      const sandboxes = view.sandboxes.map(({ id, ordinal }, index) => ({ id, step: index + 1, ordinal }));
      const keyOf = (sha256: string) => `${tenant}/sessions/${view.session}/${uid}/log/${sha256}.jsonl.gz`;
      const archive = await archiveOutput({ db, blobs, tenant, signal }, sandboxes, keyOf);
      await recordOutputArchive(db, lease, archive, context.settings.logRetention);
      return false;
    }
    case "trim":
      for (const { id, log } of view.sandboxes) {
        signal.throwIfAborted();
        if (log.seq > 0n) await deleteOutputChunks(db, lease, id);
      }
      return false;
    case "finish":
      return finishCleaning(db, lease, view);
    default:
      return step satisfies never;
  }
}
