import { monotonicMs } from "../core/monotonic.ts";

/** So many requests in any window of so many seconds; a quiet caller may spend them all at once. */
export interface RatePolicy {
  readonly requests: number;
  readonly windowSeconds: number;
}

export interface RateVerdict {
  readonly allowed: boolean;
  /** Requests that are left now. */
  readonly remaining: number;
  /** Seconds until all are there again. */
  readonly resetSeconds: number;
  /** Seconds until the next one is; 0 while some are left. */
  readonly retryAfterSeconds: number;
}

export interface RateLimiter {
  readonly policy: RatePolicy;
  /** Takes one request of this caller's. */
  take(key: string): RateVerdict;
  /** What taking one would say, without taking it. */
  look(key: string): RateVerdict;
  /** Callers that are counted at the moment. */
  readonly kept: number;
}

/**
 * A bucket a caller, in this process alone. At most `keysMax` are kept: a bucket that has filled up again says
 * no more than none, and goes first; then the one that was used least recently.
 */
export function rateLimiter(
  policy: RatePolicy,
  keysMax: number,
  now: () => number = monotonicMs,
): RateLimiter {
  const buckets = new Map<string, { left: number; at: number }>();
  const perMs = policy.requests / (policy.windowSeconds * 1000);

  function makeRoom(): void {
    for (const [key, { left, at }] of buckets) {
      if (left + (now() - at) * perMs < policy.requests && buckets.size < keysMax) return;
      buckets.delete(key);
    }
  }

  function spent(key: string, at: number): RateVerdict & { readonly left: number } {
    const known = buckets.get(key);
    const full = policy.requests;
    const filled = known === undefined ? full : Math.min(full, known.left + (at - known.at) * perMs);
    const allowed = filled >= 1;
    const left = allowed ? filled - 1 : filled;
    return {
      allowed,
      left,
      remaining: Math.floor(left),
      resetSeconds: Math.ceil((full - left) / perMs / 1000),
      retryAfterSeconds: left >= 1 ? 0 : Math.max(1, Math.ceil((1 - left) / perMs / 1000)),
    };
  }

  return {
    policy,
    get kept() {
      return buckets.size;
    },
    take(key) {
      const at = now();
      const { left, ...verdict } = spent(key, at);
      // Put in anew, so that the map's order is that of use.
      buckets.delete(key);
      if (buckets.size >= keysMax) makeRoom();
      buckets.set(key, { left, at });
      return verdict;
    },
    look: (key) => spent(key, now()),
  };
}

/** The fields of the draft "RateLimit header fields for HTTP": quota and window, what is left and until when. */
export function rateHeaders({ requests, windowSeconds }: RatePolicy, verdict: RateVerdict) {
  return {
    "ratelimit-policy": `"principal";q=${requests};w=${windowSeconds}`,
    ratelimit: `"principal";r=${verdict.remaining};t=${verdict.resetSeconds}`,
  };
}
