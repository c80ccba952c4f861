import type { HeldLease } from "../core/lease.ts";
import { attend as attendTo } from "../sandboxes/attend.ts";
import { readAttemptSnapshot } from "./attempt.store.ts";
import { type AttemptSnapshot, decide } from "./attempt.ts";
import type { ControllerContext } from "./context.ts";
import { perform } from "./perform.ts";
import { attemptRecords } from "./phase.store.ts";

/** Drive one attempt to its end. */
export function attend(
  context: ControllerContext,
  lease: HeldLease,
  signal: AbortSignal,
  changed: (job: AttemptSnapshot["job"], onChange: () => void) => () => void,
): Promise<"done" | "left"> {
  return attendTo<ControllerContext, AttemptSnapshot>(
    {
      context,
      lease,
      records: attemptRecords(context.db, lease),
      look: () => readAttemptSnapshot(context.db, lease.tenant, lease.resource),
      async act(attendance, view) {
        const step = decide(view);
        if (step.do === "nothing") return "done";
        await perform(attendance, view, step);
        return "again";
      },
      changed: (view, onChange) => (view === null ? () => undefined : changed(view.job, onChange)),
      knowsRoot: false,
      readsOutput: false,
      noun: "attempt",
    },
    signal,
  );
}
