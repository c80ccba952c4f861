import { ApiError, unreachable } from "./api-error.ts";
import { delay, retryDelay } from "./backoff.ts";
import type { Transport } from "./transport.ts";

/** One connection of a stream: reads on from where the last one stopped. `ended` says that all was read. */
export type Connection<T> = AsyncGenerator<T, "ended" | "resume", undefined>;

/**
 * A stream that outlives its connections. `open` is called again after each one that broke or was closed,
 * with waits between those that brought nothing, and gives up after as many of these as the policy allows.
 */
export async function* resumed<T>(
  transport: Transport,
  url: string,
  open: () => Connection<T>,
  signal?: AbortSignal,
): AsyncGenerator<T, void, undefined> {
  let failures = 0;
  for (;;) {
    let broken: ApiError;
    const connection = open();
    try {
      for (;;) {
        const next = await connection.next();
        if (next.done === true) {
          if (next.value === "ended") return;
          broken = unreachable(url, new Error("the server closed the stream"));
          break;
        }
        failures = 0;
        yield next.value;
      }
    } catch (error) {
      signal?.throwIfAborted();
      broken = error instanceof ApiError ? error : unreachable(url, error);
    } finally {
      // The caller may have stopped reading in the middle of it.
      await connection.return("ended");
    }
    if (!broken.retryable) throw broken;
    failures += 1;
    const wait = retryDelay(transport.streamRetry, failures, broken.retryAfterSeconds);
    if (wait === undefined) throw broken;
    await delay(wait, signal);
  }
}
