import { setTimeout as delay } from "node:timers/promises";

/** A background loop of a process. */
export interface Loop {
  /** Ends the loop after its present turn, which sees the signal abort. */
  stop(): Promise<void>;
}

const backoffFirstMs = 100;
const backoffMaxMs = 5_000;

/**
 * Run `turn` again and again until stopped. It waits by itself for something to do. A turn that throws is
 * reported and followed by a pause that doubles up to five seconds.
 */
export function startLoop(options: {
  readonly turn: (signal: AbortSignal) => Promise<void>;
  readonly onError: (error: unknown) => void;
}): Loop {
  const stopping = new AbortController();
  const ended = run(options.turn, options.onError, stopping.signal);
  return {
    async stop() {
      stopping.abort();
      await ended;
    },
  };
}

async function run(
  turn: (signal: AbortSignal) => Promise<void>,
  onError: (error: unknown) => void,
  signal: AbortSignal,
): Promise<void> {
  let pauseMs = backoffFirstMs;
  while (!signal.aborted) {
    try {
      await turn(signal);
      pauseMs = backoffFirstMs;
    } catch (error) {
      // What a turn throws because it was told to stop is not an error.
      if (signal.aborted) return;
      onError(error);
      await delay(pauseMs, undefined, { signal }).catch(() => undefined);
      pauseMs = Math.min(pauseMs * 2, backoffMaxMs);
    }
  }
}
