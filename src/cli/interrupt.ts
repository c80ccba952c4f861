import { exitCodes } from "../wire/exit-codes.ts";

/** Ctrl-C. */
export class Interrupted extends Error {
  override readonly name = "Interrupted";
}

/** A launcher may pass on what the terminal sent us already: that is still the first one. */
const sameMs = 300;

/** Aborts at the first Ctrl-C or SIGTERM; a second one ends the process at once. */
export function onInterrupt(): { readonly signal: AbortSignal; stop(): void } {
  const controller = new AbortController();
  let first = Number.POSITIVE_INFINITY;
  const interrupt = () => {
    if (performance.now() - first > sameMs) process.exit(exitCodes.interrupted);
    if (controller.signal.aborted) return;
    first = performance.now();
    controller.abort(new Interrupted("interrupted"));
  };
  const signals = ["SIGINT", "SIGTERM"] as const;
  for (const name of signals) process.on(name, interrupt);
  return {
    signal: controller.signal,
    stop: () => {
      for (const name of signals) process.off(name, interrupt);
    },
  };
}
