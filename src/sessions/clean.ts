import { archiveOutput } from "../sandboxes/archive-output.ts";
import { removeSandboxes } from "../sandboxes/reconcile.ts";
import {
  deleteOutputChunks,
  finishCleaning,
  recordCandidateRemoved,
  recordOutputArchive,
} from "./clean.store.ts";
import { type CleaningSnapshot, decideCleaning } from "./cleaning.ts";
import type { SessionAttendance } from "./context.ts";

/** Do the next of it. Each deletion of something gone is success, so it may be cut off anywhere (E14). */
export async function cleanActivation(
  attendance: SessionAttendance,
  view: CleaningSnapshot,
): Promise<"done" | "again"> {
  const { context, lease, signal } = attendance;
  const { db, blobs } = context;
  const step = decideCleaning(view);
  switch (step.do) {
    case "remove":
      await removeSandboxes(attendance, view.sandboxes);
      for (const candidate of view.lost) {
        await blobs.remove(candidate.blob_key, signal);
        await recordCandidateRemoved(db, lease, candidate);
      }
      return "again";
    case "archive": {
      const { tenant, resource: uid } = lease;
      const sandboxes = view.sandboxes.map(({ id, ordinal }, index) => ({ id, step: index + 1, ordinal }));
      const keyOf = (sha256: string) => `${tenant}/sessions/${view.session}/${uid}/log/${sha256}.jsonl.gz`;
      const archive = await archiveOutput({ db, blobs, tenant, signal }, sandboxes, keyOf);
      await recordOutputArchive(db, lease, archive, context.settings.logRetention);
      return "again";
    }
    case "trim":
      for (const { id, log } of view.sandboxes) {
        signal.throwIfAborted();
        if (log.seq > 0n) await deleteOutputChunks(db, lease, id);
      }
      return "again";
    case "finish":
      return (await finishCleaning(db, lease, view)) ? "done" : "again";
    default:
      return step satisfies never;
  }
}
