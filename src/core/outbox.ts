import type { Microseconds } from "./time.ts";
import { microseconds, seconds } from "./time.ts";

export type PublicationState = "pending" | "delivered" | "dead";

export interface RetryPolicy {
  readonly first: Microseconds;
  readonly max: Microseconds;
  readonly triesMax: number;
}

/** About a day of tries. */
export const publicationRetries: RetryPolicy = { first: seconds(1), max: seconds(3_600), triesMax: 32 };

export type Failure =
  | { readonly state: "dead" }
  | { readonly state: "pending"; readonly after: Microseconds };

/**
 * What follows a failed delivery, which was try number `tries` (S8): another one after a pause that doubles up
 * to a cap, or the end of trying, which stays visible. `random` (0 ≤ r < 1) spreads the pause over its upper
 * half, so that what failed together is not tried together. A destination may ask for more, up to the cap.
 */
export function afterFailure(
  tries: number,
  policy: RetryPolicy,
  random: number,
  retryAfter: Microseconds = microseconds(0n),
): Failure {
  if (tries >= policy.triesMax) return { state: "dead" };
  const doubled = policy.first * 2n ** BigInt(Math.min(tries - 1, 62));
  const pause = doubled < policy.max ? doubled : policy.max;
  const jitter = (pause * BigInt(Math.floor(random * 1_000))) / 2_000n;
  const own = pause / 2n + jitter;
  const asked = retryAfter < policy.max ? retryAfter : policy.max;
  return { state: "pending", after: microseconds(own > asked ? own : asked) };
}
