import { setTimeout as delay } from "node:timers/promises";
import { HoldfastError, isHoldfastError } from "../core/errors.ts";
import type { HeldLease } from "../core/lease.ts";
import { RuntimeRefusal } from "../core/runtime.port.ts";
import { readAttemptSnapshot } from "./attempt.store.ts";
import { type AttemptSnapshot, decide } from "./attempt.ts";
import type { Attendance, ControllerContext } from "./context.ts";
import { logKeeper } from "./log-keeper.ts";
import { perform } from "./perform.ts";

const backoffMinMs = 200;
const backoffMaxMs = 10_000;

/**
 * Drive one attempt to its end: look at everything, decide, act, record; again. Level-triggered, so it does
 * not matter who did the last step or where it stopped (S12). Gives back whether the attempt is done with;
 * otherwise the lease was lost or the controller stops, and another goes on.
 */
export async function attend(
  context: ControllerContext,
  lease: HeldLease,
  signal: AbortSignal,
  changed: (job: AttemptSnapshot["job"], onChange: () => void) => () => void,
): Promise<"done" | "left"> {
  let dirty = false;
  let wake = () => {};
  let unsubscribe: (() => void) | undefined;
  const logs = logKeeper(context, lease, signal);
  const attendance: Attendance = {
    context,
    lease,
    signal,
    logs,
    fenced: new Set(),
    pause: (ms, also) => pause(ms, also),
  };

  async function pause(ms: number, also?: (signal: AbortSignal) => Promise<void>): Promise<void> {
    if (dirty) return;
    const ended = new AbortController();
    const either = AbortSignal.any([signal, ended.signal]);
    const rung = new Promise<void>((resolve) => {
      wake = resolve;
    });
    const waits = [rung, delay(ms, undefined, { signal: either })];
    if (also !== undefined) waits.push(also(either));
    try {
      await Promise.race(waits);
    } finally {
      ended.abort();
      await Promise.allSettled(waits.slice(1));
    }
  }

  let failures = 0;
  try {
    while (!signal.aborted) {
      dirty = false;
      try {
        const view = await readAttemptSnapshot(context.db, lease.tenant, lease.resource);
        if (unsubscribe === undefined) {
          unsubscribe = changed(view.job, () => {
            dirty = true;
            wake();
          });
          // What changed after that look and before this is told to nobody: look again.
          continue;
        }
        const step = decide(view);
        if (step.do === "nothing") return "done";
        await perform(attendance, view, step);
        failures = 0;
      } catch (error) {
        if (signal.aborted || lost(error)) return "left";
        failures += 1;
        report(context, lease, error, failures);
        dirty = false;
        await pause(Math.min(backoffMinMs * 2 ** (failures - 1), backoffMaxMs)).catch(() => undefined);
      }
    }
    return "left";
  } finally {
    unsubscribe?.();
    await logs.stop();
  }
}

/** Another holds the lease, or the world says that another has taken over: nothing more to do here. */
function lost(error: unknown): boolean {
  return (
    isHoldfastError(error, "fenced") ||
    isHoldfastError(error, "deployment_fenced") ||
    (error instanceof RuntimeRefusal && error.reason === "superseded")
  );
}

function report(context: ControllerContext, lease: HeldLease, error: unknown, failures: number): void {
  const message = error instanceof Error ? error.message : String(error);
  const code =
    error instanceof HoldfastError ? error.code : error instanceof RuntimeRefusal ? error.reason : undefined;
  context.log(failures < 3 ? "warn" : "error", "a step of an attempt failed and is tried again", {
    tenant: lease.tenant,
    attempt: lease.resource,
    failures,
    code,
    error: message,
  });
}
