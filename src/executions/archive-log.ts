import { archiveOutput } from "../sandboxes/archive-output.ts";
import { deleteLogChunks, recordLogArchive } from "./archive-log.store.ts";
import type { AttemptSnapshot } from "./attempt.ts";
import type { Attendance } from "./context.ts";

/** What it takes to archive under a lease. */
export interface Archiving extends Pick<Attendance, "lease" | "signal"> {
  readonly context: Pick<Attendance["context"], "db" | "blobs"> & {
    readonly settings: Pick<Attendance["context"]["settings"], "logRetention">;
  };
}

/** Archive the output of an attempt that has ended, in reading order: that of phases and their sandboxes (E19). */
export async function archiveLog(
  { context, lease, signal }: Archiving,
  view: AttemptSnapshot,
): Promise<void> {
  const { db, blobs, settings } = context;
  const { tenant, job, ordinal } = view;
  const sandboxes = view.phases.flatMap((phase) =>
    view.sandboxes
      .filter((sandbox) => sandbox.step === phase.name)
      .toSorted((a, b) => a.ordinal - b.ordinal)
      .map((sandbox) => ({ id: sandbox.id, step: phase.number, ordinal: sandbox.ordinal })),
  );
  const keyOf = (sha256: string) => `${tenant}/jobs/${job}/${ordinal}/log/${sha256}.jsonl.gz`;
  const archive = await archiveOutput({ db, blobs, tenant, signal }, sandboxes, keyOf);
  await recordLogArchive(db, lease, archive, settings.logRetention);
}

/** The chunks are in the archive, where readers find them from now on: they can go. */
export async function trimLog({ context, lease, signal }: Archiving, view: AttemptSnapshot): Promise<void> {
  for (const sandbox of view.sandboxes) {
    signal.throwIfAborted();
    if (sandbox.log.seq > 0n) await deleteLogChunks(context.db, lease, sandbox.id);
  }
}
