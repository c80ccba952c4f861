import { RuntimeRefusal } from "../../core/runtime.port.ts";
import type { Microseconds } from "../../core/time.ts";
import { ApiError } from "./api-error.ts";
import type { Pod } from "./pod.ts";
import { changedWhileHeld, epochOf, isDeleting } from "./pod-marks.ts";

/** An admission that only another manifest would pass. The server has no reason of its own for it. */
const securityRefusal = "violates PodSecurity";

/**
 * What a refused create means. A spec that the server calls invalid, or that its security profile forbids, is
 * never accepted; a full quota, missing rights and everything else may pass, and are tried again.
 */
export function refusalOfCreate(error: unknown): unknown {
  if (!(error instanceof ApiError)) return error;
  const never = [400, 413, 422].includes(error.status);
  if (never || (error.status === 403 && error.message.includes(securityRefusal))) {
    return new RuntimeRefusal("invalid", `the API server refuses this pod: ${error.message}`);
  }
  return error;
}

/** What makes a release impossible for good. */
export function requireReleasable(pod: Pod, epoch: bigint, limit: Microseconds): void {
  if (isDeleting(pod)) throw new RuntimeRefusal("stopping", "it was stopped before it was released");
  if (epoch > epochOf(pod)) {
    throw new RuntimeRefusal("invalid", `fence epoch ${epoch} before releasing with it`);
  }
  if (limit <= 0n) throw new RuntimeRefusal("invalid", "nothing is left of the deadline");
  if (changedWhileHeld(pod)) {
    throw new RuntimeRefusal("invalid", "its spec was changed by somebody else while it was held");
  }
}
