import type { IncomingMessage } from "node:http";

/**
 * A stream's parts, ended by its end, its truncation, or too long a silence. Which of them it was says nothing
 * about the object: a watch ends after its time and a log follow ends cleanly when the node dies.
 */
export async function* untilSilent(
  response: IncomingMessage,
  silenceMs: number,
  signal: AbortSignal,
): AsyncGenerator<Buffer, "ended" | "truncated"> {
  let timer: NodeJS.Timeout | undefined;
  const arm = () => {
    clearTimeout(timer);
    timer = setTimeout(() => response.destroy(), silenceMs);
  };
  const abort = () => response.destroy();
  signal.addEventListener("abort", abort, { once: true });
  if (signal.aborted) abort();
  try {
    arm();
    for await (const part of response) {
      clearTimeout(timer);
      yield Buffer.from(part);
      arm();
    }
    return response.complete ? "ended" : "truncated";
  } catch {
    return "truncated";
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", abort);
    response.destroy();
  }
}
