import { HoldfastError, isHoldfastError } from "../core/errors.ts";
import type { Principal } from "./principal.ts";

/** An open stream, as far as its end is somebody else's business. */
export interface OpenStream {
  readonly principal: Principal;
  end(): void;
  /** Its token is no longer live. */
  expire(): void;
}

/** All open streams of a process: bounded for each principal, ended with their token and at shutdown (G7). */
export interface Streams {
  /** Counts the stream until what is returned is called. Throws `too_many_streams`, or `unavailable` while closing. */
  enter(stream: OpenStream): () => void;
  readonly open: number;
  close(): void;
}

const retrySeconds = 5;

export function trackStreams(options: {
  readonly perPrincipal: number;
  readonly checkMs: number;
  readonly isLive: (principal: Principal) => Promise<boolean>;
  readonly onError: (error: unknown) => void;
}): Streams {
  const streams = new Set<OpenStream>();
  const perPrincipal = new Map<string, number>();
  let timer: NodeJS.Timeout | undefined;
  let closing = false;

  const count = (id: string, by: number) => {
    const next = (perPrincipal.get(id) ?? 0) + by;
    if (next === 0) perPrincipal.delete(id);
    else perPrincipal.set(id, next);
  };

  /** One look-up a token, however many streams it has. */
  async function check(): Promise<void> {
    const byCredential = Map.groupBy(streams, ({ principal }) => principal.credential);
    for (const held of byCredential.values()) {
      const [first] = held;
      if (first === undefined || (await options.isLive(first.principal))) continue;
      for (const stream of held) stream.expire();
    }
  }

  function schedule(): void {
    if (timer !== undefined || closing || streams.size === 0) return;
    timer = setTimeout(() => {
      check()
        .catch((error: unknown) => {
          // While the database can't be asked a token stays as good as it was.
          if (!isHoldfastError(error, "unavailable")) options.onError(error);
        })
        .finally(() => {
          timer = undefined;
          schedule();
        });
    }, options.checkMs);
    timer.unref();
  }

  return {
    get open() {
      return streams.size;
    },
    enter(stream) {
      const { id } = stream.principal;
      if (closing) throw new HoldfastError("unavailable", "the server is closing", { retryAfterSeconds: 1 });
      if ((perPrincipal.get(id) ?? 0) >= options.perPrincipal) {
        throw new HoldfastError("too_many_streams", `at most ${options.perPrincipal} streams at a time`, {
          retryAfterSeconds: retrySeconds,
        });
      }
      streams.add(stream);
      count(id, 1);
      schedule();
      return () => {
        if (streams.delete(stream)) count(id, -1);
      };
    },
    close() {
      closing = true;
      clearTimeout(timer);
      // Each takes itself out as it ends, which a Set allows while it is walked.
      for (const stream of streams) stream.end();
    },
  };
}
