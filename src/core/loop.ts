import { setTimeout as delay } from "node:timers/promises";
import { monotonicMs } from "./monotonic.ts";

/** A background loop of a process. */
export interface Loop {
  /** Ends the loop after its present turn, which sees the signal abort. */
  stop(): Promise<void>;
}

/** One whose turns are watched. */
export interface TurningLoop extends Loop {
  /** When it last ended a turn without a failure, or began; on the monotonic clock. For readiness. */
  readonly turnedAt: number;
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
}): TurningLoop {
  const stopping = new AbortController();
  let turnedAt = monotonicMs();
  const turn = async (signal: AbortSignal) => {
    await options.turn(signal);
    turnedAt = monotonicMs();
  };
  const ended = run(turn, options.onError, stopping.signal);
  return {
    get turnedAt() {
      return turnedAt;
    },
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
