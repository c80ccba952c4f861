import type { AttemptView, JobView, LogLine } from "../wire/job.ts";
import { problemError, unexpected } from "./api-error.ts";
import { lines } from "./lines.ts";
import { type Connection, resumed } from "./resume.ts";
import type { CallOptions, Transport } from "./transport.ts";

export interface LogOptions extends CallOptions {
  /** Go on until there can be no more lines. */
  readonly follow?: boolean | undefined;
  readonly attempt?: number | undefined;
  readonly phase?: string | undefined;
  readonly after?: string | undefined;
  /** Nothing older: a duration (`10m`: so long ago) or an instant (RFC 3339). */
  readonly since?: string | undefined;
  /** Only the last so many of the lines that are there at first. */
  readonly tail?: number | undefined;
}

/** What the end of a stream is judged by. */
export interface LogSource {
  readonly job: (signal?: AbortSignal) => Promise<JobView>;
  readonly attempts: (signal?: AbortSignal) => Promise<readonly AttemptView[]>;
}

/** Every line of a job's output, in order, each once (E19). Resumes after the last one when a connection breaks. */
export function logs(
  transport: Transport,
  url: string,
  path: string,
  source: LogSource,
  options: LogOptions,
): AsyncIterable<LogLine> {
  const { attempt, phase, since, signal } = options;
  let { after } = options;
  // A server may close a stream before its job is over. Once it is over, what is left is read to its end.
  let follow = options.follow === true;
  const open = async function* (): Connection<LogLine> {
    for (;;) {
      let found = false;
      // The last lines of those that are there at first. Once one has come, it is the place to go on from.
      const tail = after === options.after ? options.tail : undefined;
      const response = await transport.sendOnce({
        path,
        query: { follow: follow ? true : undefined, attempt, phase, since, after, tail },
        headers: { accept: "application/jsonl" },
        signal,
        stream: true,
      });
      if (response.body === null) throw unexpected("the stream has no body", response.status);
      for await (const text of lines(response.body, transport.silenceMs, signal)) {
        if (text === "") continue;
        const line = lineOf(text);
        found = true;
        yield line;
        // Only now has the caller got it.
        after = line.cursor;
      }
      if (follow) {
        if (!isOver(await source.job(signal), await source.attempts(signal), options)) return "resume";
        follow = false;
      } else if (!found) {
        return "ended";
      }
    }
  };
  return resumed(transport, url, open, signal);
}

/** Whether what is followed can print nothing more. */
function isOver(job: JobView, attempts: readonly AttemptView[], { attempt, phase }: LogOptions): boolean {
  if (job.finished_at !== null) return true;
  const followed = attempts.find((one) => one.attempt === attempt);
  if (followed === undefined) return false;
  if (followed.state !== "active") return true;
  return followed.phases.some((one) => one.name === phase && one.finished_at !== null);
}

function lineOf(text: string): LogLine {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw unexpected("a log line in the stream is not JSON", 200, error);
  }
  if (typeof value === "object" && value !== null && "code" in value && !("cursor" in value)) {
    throw problemError(text, 200);
  }
  return value as LogLine; // The server's own schema says so (G15).
}
