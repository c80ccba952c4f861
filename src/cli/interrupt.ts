import { exitCodes } from "../wire/exit-codes.ts";

/** Ctrl-C. */
export class Interrupted extends Error {
  override readonly name = "Interrupted";
}

/** Aborts at the first Ctrl-C; the second one ends the process at once. */
export function onInterrupt(): { readonly signal: AbortSignal; stop(): void } {
  const controller = new AbortController();
  const interrupt = () => {
    if (controller.signal.aborted) process.exit(exitCodes.interrupted);
    controller.abort(new Interrupted("interrupted"));
  };
  process.on("SIGINT", interrupt);
  return { signal: controller.signal, stop: () => process.off("SIGINT", interrupt) };
}
