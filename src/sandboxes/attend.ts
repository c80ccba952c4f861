import { setTimeout as delay } from "node:timers/promises";
import { HoldfastError, isHoldfastError } from "../core/errors.ts";
import type { HeldLease } from "../core/lease.ts";
import { RuntimeRefusal } from "../core/runtime.port.ts";
import type { SandboxAttendance, SandboxContext } from "./context.ts";
import { logKeeper } from "./log-keeper.ts";
import type { SandboxRecords } from "./record.store.ts";

const backoffMinMs = 200;
const backoffMaxMs = 10_000;

/** What is attended to: how to look at it, and how to do the next thing. */
export interface Attended<Context extends SandboxContext, View> {
  readonly context: Context;
  readonly lease: HeldLease;
  readonly records: SandboxRecords;
  readonly look: () => Promise<View>;
  /** Decide one step from the look, and do it. `done`: there is nothing left to attend to, and no lease to give back. */
  readonly act: (attendance: SandboxAttendance<Context>, view: View) => Promise<"done" | "again">;
  /**
   * Calls back on each change, until the returned function is called. Asked before the first look, with null, when the
   * lease alone says whose changes they are (`knowsRoot`), and after it otherwise.
   */
  readonly changed: (view: View | null, onChange: () => void) => () => void;
  readonly knowsRoot: boolean;
  /** Whether stored output is a reason to look again. */
  readonly readsOutput: boolean;
  /** What it is, for the log. */
  readonly noun: "attempt" | "session" | "activation";
}

/**
 * Drive something that runs in sandboxes: look at everything, decide, act, record; again. Level-triggered, so it does
 * not matter who did the last step or where it stopped (S12). Gives back whether it is done with; otherwise the lease
 * was lost or the controller stops, and another goes on.
 */
export async function attend<Context extends SandboxContext, View>(
  attended: Attended<Context, View>,
  signal: AbortSignal,
): Promise<"done" | "left"> {
  const { context, lease, records } = attended;
  let dirty = false;
  let wake = () => {};
  let unsubscribe: (() => void) | undefined;
  const touched = () => {
    dirty = true;
    wake();
  };
  const logs = logKeeper(context, lease, records, signal, attended.readsOutput ? touched : undefined);
  const attendance: SandboxAttendance<Context> = {
    context,
    lease,
    signal,
    logs,
    records,
    fenced: new Set(),
    obstacles: new Map(),
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
    if (attended.knowsRoot) unsubscribe = attended.changed(null, touched);
    while (!signal.aborted) {
      dirty = false;
      try {
        const view = await attended.look();
        if (unsubscribe === undefined) {
          unsubscribe = attended.changed(view, touched);
          // What changed after that look and before this is told to nobody: look again.
          continue;
        }
        if ((await attended.act(attendance, view)) === "done") return "done";
        failures = 0;
      } catch (error) {
        if (signal.aborted || lost(error)) return "left";
        failures += 1;
        report(attended, error, failures);
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

function report(
  { context, lease, noun }: Pick<Attended<SandboxContext, unknown>, "context" | "lease" | "noun">,
  error: unknown,
  failures: number,
): void {
  const message = error instanceof Error ? error.message : String(error);
  const code =
    error instanceof HoldfastError ? error.code : error instanceof RuntimeRefusal ? error.reason : undefined;
  const what = noun === "session" ? "a session" : `an ${noun}`;
  context.log(failures < 3 ? "warn" : "error", `a step of ${what} failed and is tried again`, {
    tenant: lease.tenant,
    [noun]: lease.resource,
    failures,
    code,
    error: message,
  });
}
