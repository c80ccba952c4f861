import { unexpected } from "./api-error.ts";

const lineCharactersMax = 4_194_304;

/**
 * The lines of a body, without their ends (LF or CRLF). A last one without an end is not given: the stream
 * broke inside it. Throws when nothing arrives for `silenceMs`, and the signal's reason when it aborts.
 */
export async function* lines(
  body: ReadableStream<Uint8Array>,
  silenceMs: number,
  signal?: AbortSignal,
): AsyncGenerator<string, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await heard(reader.read(), silenceMs, signal);
      if (done) return;
      const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = parts.pop() ?? "";
      if (rest.length > lineCharactersMax) throw unexpected("a line of the stream is too long", 200);
      for (const part of parts) yield part.endsWith("\r") ? part.slice(0, -1) : part;
    }
  } finally {
    // Also when the caller stops reading: the connection is given up at once.
    reader.cancel().catch(() => undefined);
  }
}

function heard<T>(reading: Promise<T>, silenceMs: number, signal: AbortSignal | undefined): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => settle(() => reject(signal?.reason));
    const timer = setTimeout(() => settle(() => reject(new Error(`silent for ${silenceMs} ms`))), silenceMs);
    const settle = (finish: () => void) => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      finish();
    };
    if (signal?.aborted === true) return abort();
    signal?.addEventListener("abort", abort, { once: true });
    reading.then(
      (value) => settle(() => resolve(value)),
      (error: unknown) => settle(() => reject(error)),
    );
  });
}
