import type { ChangeEvent } from "../wire/job.ts";
import { problemError, unexpected } from "./api-error.ts";
import { streamEvents } from "./events.ts";
import { lines } from "./lines.ts";
import { type Connection, resumed } from "./resume.ts";
import type { CallOptions, Transport } from "./transport.ts";

export interface WatchOptions extends CallOptions {
  /** Changes after this cursor; without it, those from now on. */
  readonly after?: string | undefined;
  /** Of this job alone, with all that belongs to it. */
  readonly job?: string | undefined;
  /** Of this session alone, with its activations and what they say. */
  readonly session?: string | undefined;
  readonly kind?: string | undefined;
  /** Of what has all of these labels after the change. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
}

/**
 * Every change, in order, each once (G7, S14). Resumes after the last cursor when a connection breaks. Throws
 * `CursorExpiredError` when the server no longer keeps what came after it.
 */
export function watch(transport: Transport, url: string, options: WatchOptions): AsyncIterable<ChangeEvent> {
  let after = options.after;
  const label = Object.entries(options.labels ?? {}).map(([name, value]) => `${name}=${value}`);
  const open = async function* (): Connection<ChangeEvent> {
    const response = await transport.sendOnce({
      path: "/v1/watch",
      query: { after, job: options.job, session: options.session, kind: options.kind, label },
      headers: { accept: "text/event-stream" },
      signal: options.signal,
      stream: true,
    });
    if (response.body === null) throw unexpected("the stream has no body", response.status);
    for await (const event of streamEvents(lines(response.body, transport.silenceMs, options.signal))) {
      if (event.event === "error") throw problemError(event.data, response.status);
      if (event.event !== "bookmark") yield changeOf(event.data);
      // Only now has the caller got it: asked again for one that it did not get, the server sends it again.
      after = event.id ?? after;
    }
    return "resume";
  };
  return resumed(transport, url, open, options.signal);
}

function changeOf(data: string): ChangeEvent {
  try {
    return JSON.parse(data) as ChangeEvent; // The server's own schema says so (G15).
  } catch (error) {
    throw unexpected("a change in the stream is not JSON", 200, error);
  }
}
