import { setTimeout as delay } from "node:timers/promises";
import { ApiError } from "./api-error.ts";

export interface RetryLimits {
  readonly attemptsMax: number;
  readonly firstDelayMs: number;
  /** A server that asks for more than this gets its way by the caller's own next try. */
  readonly delayMsMax: number;
}

/**
 * Try again after faults that pass, no earlier than the server asks with `Retry-After`. Every request here may
 * be sent twice: names are deterministic, patches test the UID and deletes carry it. So a retry after a lost
 * answer finds 409, 422 or 404, and its caller reads the object before it concludes anything.
 */
export async function retrying<T>(
  limits: RetryLimits,
  signal: AbortSignal,
  attempt: () => Promise<T>,
): Promise<T> {
  for (let made = 1; ; made += 1) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof ApiError) || !error.retryable || made >= limits.attemptsMax) throw error;
      const wait = waitBefore(error, made, limits);
      if (wait === null) throw error;
      await delay(wait, undefined, { signal });
    }
  }
}

/** Doubled each time, with a jitter of half, so that many clients do not return at once. */
function waitBefore(error: ApiError, made: number, limits: RetryLimits): number | null {
  const asked = error.retryAfterMs ?? 0;
  if (asked > limits.delayMsMax) return null;
  const backoff = Math.min(limits.firstDelayMs * 2 ** (made - 1), limits.delayMsMax);
  return Math.max(asked, backoff * (0.5 + Math.random() / 2));
}
