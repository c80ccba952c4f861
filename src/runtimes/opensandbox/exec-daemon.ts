import { ExecEventCutter } from "./exec-stream.ts";
import type { Endpoint } from "./lifecycle.ts";
import { noAnswer, ServiceError } from "./service-error.ts";
import { open } from "./transport.ts";

export const execPort = 44772;

export interface ExecCommand {
  readonly command: string;
  readonly background: boolean;
  readonly envs?: Readonly<Record<string, string>>;
  /** How long it may take, pings or not. */
  readonly timeoutMs: number;
  /** Pings come every 3 s: more silence than this is a dead connection. */
  readonly silenceMs: number;
}

/** Lines of standard output as they come, without their ends. */
export type OutputLine = string;

const errorWordsMax = 500;

/**
 * Run one command and give its output. Throws `ServiceError` unless it is said to have completed: a stream that was
 * cut off before that leaves open what became of it. Ids of commands are not kept, as the daemon forgets them when
 * it restarts.
 */
export async function* runCommand(
  endpoint: Endpoint,
  { command, background, envs, timeoutMs, silenceMs }: ExecCommand,
  signal: AbortSignal,
): AsyncGenerator<OutputLine, void> {
  const silence = new AbortController();
  const bounded = AbortSignal.any([signal, silence.signal, AbortSignal.timeout(timeoutMs)]);
  let timer: NodeJS.Timeout | undefined;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(new Error(`silent for ${silenceMs} ms`)), silenceMs);
  };
  const body = {
    command,
    background,
    ...(background ? {} : { timeout: timeoutMs }),
    ...(envs === undefined ? {} : { envs }),
  };
  const url = `${endpoint.url}/command`;
  const headers = { accept: "text/event-stream", ...endpoint.headers };
  let errors = "";
  try {
    heard();
    const response = await open({ method: "POST", url, headers, body }, bounded, signal);
    const cutter = new ExecEventCutter();
    for await (const part of response.body ?? []) {
      heard();
      for (const event of cutter.push(part)) {
        switch (event.is) {
          case "stdout":
            yield event.text;
            break;
          case "stderr":
            errors = `${errors}${event.text} `.slice(0, errorWordsMax);
            break;
          case "failed":
            throw new ServiceError(0, "", `the command in the sandbox failed: ${event.message} ${errors}`);
          case "completed":
            return;
          case "init":
          case "ping":
          case "unknown":
            break;
        }
      }
    }
    throw new Error("the stream ended before the command did");
  } catch (error) {
    signal.throwIfAborted();
    throw error instanceof ServiceError ? error : noAnswer("POST /command", bounded.reason ?? error);
  } finally {
    clearTimeout(timer);
    // Whatever is left of the connection goes; the command itself doesn't mind.
    silence.abort(new Error("read to its end"));
  }
}
