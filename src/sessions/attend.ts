import type { HeldLease } from "../core/lease.ts";
import { attend } from "../sandboxes/attend.ts";
import { decide, type SessionSnapshot } from "./activation.ts";
import { readCleaning } from "./clean.store.ts";
import { cleanActivation } from "./clean.ts";
import type { CleaningSnapshot } from "./cleaning.ts";
import type { SessionContext } from "./context.ts";
import { perform } from "./perform.ts";
import { activationRecords, readSessionSnapshot } from "./run.store.ts";

/** Calls back on each change of a session, until the returned function is called. */
export type SessionChanges = (session: string, onChange: () => void) => () => void;

/** Drive one session for as long as it has something to do. */
export function attendSession(
  context: SessionContext,
  lease: HeldLease,
  signal: AbortSignal,
  changes: SessionChanges,
): Promise<"done" | "left"> {
  const session = lease.resource;
  // The one at work, whose sandboxes are moved: it is looked at before each of them is.
  let uid = "";
  return attend<SessionContext, SessionSnapshot>(
    {
      context,
      lease,
      records: activationRecords(context.db, lease, () => uid),
      look: () => readSessionSnapshot(context.db, lease.tenant, session),
      act(attendance, view) {
        uid = view.activation?.uid ?? "";
        return perform(attendance, view, decide(view));
      },
      changed: (_view, onChange) => changes(session, onChange),
      knowsRoot: true,
      readsOutput: true,
      noun: "session",
    },
    signal,
  );
}

/** Remove what an activation left outside: its sandboxes, candidates that became no revision, and its output. */
export function attendActivation(
  context: SessionContext,
  lease: HeldLease,
  signal: AbortSignal,
): Promise<"done" | "left"> {
  const uid = lease.resource;
  return attend<SessionContext, CleaningSnapshot>(
    {
      context,
      lease,
      records: activationRecords(context.db, lease, () => uid),
      look: () => readCleaning(context.db, lease),
      act: cleanActivation,
      // Nothing that happens meanwhile makes less of it.
      changed: () => () => undefined,
      knowsRoot: true,
      readsOutput: false,
      noun: "activation",
    },
    signal,
  );
}
