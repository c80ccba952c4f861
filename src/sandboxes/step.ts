import { type Instant, instant } from "../core/time.ts";
import type { Sandbox } from "./sandbox.ts";

/** One thing to do with a sandbox. Each is idempotent, so a controller that dies after any part of it loses nothing. */
export type SandboxStep =
  /** Create the object held and commit its UID. */
  | { readonly do: "hold"; readonly sandbox: Sandbox }
  /** Commit that it may run, and let it. */
  | { readonly do: "release"; readonly sandbox: Sandbox }
  /** Look after a running one until something changes: its end, a cancellation, the deadline. */
  | { readonly do: "watch"; readonly sandbox: Sandbox }
  /** Commit that it must end. */
  | { readonly do: "stop"; readonly sandbox: Sandbox; readonly reason: SandboxStop }
  /** Ask it to end and look until that is proven. */
  | { readonly do: "prove"; readonly sandbox: Sandbox }
  /** It was never recorded outside, so it never ran: settle it without asking the world. */
  | { readonly do: "abandon"; readonly sandbox: Sandbox }
  /** Store what is left of its output. */
  | { readonly do: "drain"; readonly sandbox: Sandbox };

export type StopReason = "cancelled" | "deadline";
/** `fault`: what it has said so far can come to nothing any more. */
export type SandboxStop = StopReason | "fault";

/** What to do with a sandbox that is not proven stopped, or null when it is. `stop`: why it must not run. */
export function attendSandbox(sandbox: Sandbox, stop: SandboxStop | null): SandboxStep | null {
  switch (sandbox.state) {
    case "planned":
      return stop === null ? { do: "hold", sandbox } : { do: "abandon", sandbox };
    case "held":
      return stop === null ? { do: "release", sandbox } : { do: "stop", sandbox, reason: stop };
    case "released":
      return stop === null ? { do: "watch", sandbox } : { do: "stop", sandbox, reason: stop };
    case "stopping":
      return { do: "prove", sandbox };
    case "stopped":
    case "removed":
      return null;
    default:
      return sandbox.state satisfies never;
  }
}

/** For the kill itself, and for the way there. */
const killMarginUs = 500_000n;

/**
 * When a sandbox is asked to stop, so that even one that doesn't listen has ended at its deadline: its grace before
 * that (E4).
 */
export function lastCallOf(deadline: Instant, graceUs: bigint): Instant {
  return instant(deadline - graceUs - killMarginUs);
}

/** Why a sandbox must end: somebody asked for it, or its time is over. */
export function stopReasonOf(now: Instant, cancelRequested: boolean, end: Instant): StopReason | null {
  if (cancelRequested) return "cancelled";
  return now >= end ? "deadline" : null;
}

/** Sandboxes of one step that ended before they started; after that many the step has failed. */
export const startTriesMax = 3;

/** The failure that a sandbox's outcome means, when it isn't a good end. */
export const outcomeFailures: Readonly<Record<string, string>> = {
  signaled: "signaled",
  out_of_memory: "out_of_memory",
  evicted: "evicted",
  start_failed: "start_failed",
  never_started: "start_failed",
  lost: "sandbox_lost",
  stopped: "sandbox_lost",
  unknown: "sandbox_lost",
};
