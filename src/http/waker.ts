import type { Doorbell } from "../core/postgres/doorbell.ts";

/** For a stream of what is not in the change log: looks again when something was committed anywhere. */
export interface Waker {
  /** Resolves after a ring since the last wait began, or after a while without one, or with the signal. */
  wait(signal: AbortSignal): Promise<void>;
  close(): void;
}

/** However often it rings, a stream looks at most this often; without a ring, this seldom. */
const gapMs = 100;
const idleMs = 2_000;

export function openWaker(doorbell: Pick<Doorbell, "onRing">): Waker {
  let rung = true;
  let wake = () => {};
  const deaf = doorbell.onRing(() => {
    rung = true;
    wake();
  });
  const pause = (ms: number, signal: AbortSignal, rings: boolean) =>
    new Promise<void>((resolve) => {
      const done = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", done);
        wake = () => {};
        resolve();
      };
      const timer = setTimeout(done, ms);
      signal.addEventListener("abort", done);
      if (rings) wake = done;
      if (signal.aborted || (rings && rung)) done();
    });
  return {
    async wait(signal) {
      await pause(gapMs, signal, false);
      await pause(idleMs, signal, true);
      rung = false;
    },
    close: deaf,
  };
}
