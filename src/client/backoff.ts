/** How often and how long to try again. The waits grow twofold from `firstMs` to `longestMs`, with full jitter. */
export interface RetryPolicy {
  readonly triesMax: number;
  readonly firstMs: number;
  readonly longestMs: number;
  /** A `Retry-After` beyond this is not waited for: the caller is told instead. */
  readonly retryAfterMsMax: number;
}

export const defaultRetry: RetryPolicy = {
  triesMax: 6,
  firstMs: 200,
  longestMs: 10_000,
  retryAfterMsMax: 60_000,
};

/**
 * Milliseconds to wait before try `failures + 1`, or nothing when it is time to give up. The server's own
 * `Retry-After` is a lower bound; jitter is added to it, so that its clients don't all come back at once.
 */
export function retryDelay(
  policy: RetryPolicy,
  failures: number,
  retryAfterSeconds: number | null,
  random: () => number = Math.random,
): number | undefined {
  if (failures >= policy.triesMax) return undefined;
  const asked = (retryAfterSeconds ?? 0) * 1000;
  if (asked > policy.retryAfterMsMax) return undefined;
  const ceiling = Math.min(policy.longestMs, policy.firstMs * 2 ** (failures - 1));
  return Math.round(asked + ceiling * random());
}

/** Wait, or throw the signal's reason. */
export function delay(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, milliseconds);
    if (signal?.aborted === true) abort();
    else signal?.addEventListener("abort", abort, { once: true });
  });
}
