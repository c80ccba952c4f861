import type { IncomingMessage } from "node:http";
import type { LogRecord } from "../../core/runtime.port.ts";
import { instant } from "../../core/time.ts";
import { LogCounter, type LogCursor, writeCursor } from "./log-cursor.ts";
import { LogCutter, type LogLine, type LogPiece, pieceBytesMax } from "./log-lines.ts";
import { untilSilent } from "./silence.ts";

export interface LogBody {
  readonly uid: string;
  readonly response: IncomingMessage;
  readonly silenceMs: number;
  readonly bytesMax: number;
  /** Nothing can be written any more, so what stands behind the last newline is the last line. */
  readonly final: boolean;
}

/** How reading one answer went. */
export interface LogReading {
  readonly cursor: LogCursor | null;
  /**
   * `missing`: the place where we were is not in it, so it must be read again by time. `over`: no more will
   * ever follow.
   */
  readonly ended: "clean" | "truncated" | "missing" | "over";
}

const nothing: LogCursor = { at: 0n, base: 0n, lines: 0, pieces: 0, bytes: 0, state: "whole" };
/** Lines of a burst come as one record: so close together, and no more of them than this. */
const burstNanoseconds = 1_000_000n;
const recordBytesMax = pieceBytesMax;

/**
 * What is new in one answer of the server, after `cursor`. A log that was rotated lacks the lines that we count
 * on: then, and when the node lost the log, the output says so, for the lines are gone without a sign.
 */
export async function* readLogBody(
  body: LogBody,
  cursor: LogCursor | null,
  signal: AbortSignal,
): AsyncGenerator<LogRecord, LogReading> {
  const cutter = new LogCutter();
  const parts = untilSilent(body.response, body.silenceMs, signal);
  const sorter = new LogSorter(body, cursor);
  try {
    for (;;) {
      const part = await parts.next();
      signal.throwIfAborted();
      const whole = part.done === true && part.value === "ended";
      const lines = part.done === true ? (whole && body.final ? cutter.end() : []) : cutter.push(part.value);
      const { records, ended } = sorter.sort(lines);
      yield* records;
      if (ended !== null) return { cursor: sorter.cursor, ended };
      if (part.done === true) {
        // It ended before the place where we were: the lines in front of it are gone.
        if (sorter.skipping && whole) return { cursor: sorter.cursor, ended: "missing" };
        return { cursor: sorter.cursor, ended: whole ? "clean" : "truncated" };
      }
    }
  } finally {
    body.response.destroy();
  }
}

/** Takes the lines of one answer, drops those that were given before, and makes records of the others. */
class LogSorter {
  cursor: LogCursor | null;
  skipping: boolean;
  readonly #body: LogBody;
  readonly #counter = new LogCounter();
  #burst: { readonly at: bigint; parts: Uint8Array[]; bytes: number } | null = null;
  #records: LogRecord[] = [];

  constructor(body: LogBody, cursor: LogCursor | null) {
    this.#body = body;
    this.cursor = cursor;
    this.skipping = cursor !== null && cursor.state === "whole";
  }

  sort(lines: readonly LogLine[]): {
    readonly records: readonly LogRecord[];
    readonly ended: "over" | "missing" | null;
  } {
    this.#records = [];
    let ended: "over" | "missing" | null = null;
    for (const line of lines) {
      ended = "words" in line ? this.#end(`the log is gone: ${line.words.slice(0, 200)}`) : this.#take(line);
      if (ended !== null) break;
    }
    this.#flush();
    return { records: this.#records, ended };
  }

  #take(line: LogPiece): "over" | "missing" | null {
    this.#counter.add(line);
    const place = this.cursor;
    if (place !== null && this.skipping) {
      const step = compare(line, place, this.#counter);
      this.skipping = step === "before";
      return step === "missing" ? "missing" : null;
    }
    if (place !== null && place.state === "gap" && line.at <= place.at) return null;
    const bytes = (place?.bytes ?? 0) + line.bytes.length;
    if (bytes > this.#body.bytesMax) return this.#end(`output truncated after ${this.#body.bytesMax} bytes`);
    const burst = this.#burst;
    const fits =
      burst !== null &&
      line.at - burst.at <= burstNanoseconds &&
      burst.bytes + line.bytes.length <= recordBytesMax;
    if (!fits) this.#flush();
    this.#burst ??= { at: line.at, parts: [], bytes: 0 };
    this.#burst.parts.push(line.bytes);
    this.#burst.bytes += line.bytes.length;
    this.cursor = { at: line.at, ...this.#counter.place(), bytes, state: "whole" };
    return null;
  }

  #flush(): void {
    if (this.#burst === null || this.cursor === null) return;
    const { at, parts } = this.#burst;
    this.#burst = null;
    this.#records.push(record(this.#body.uid, this.cursor, at, Buffer.concat(parts)));
  }

  #end(words: string): "over" {
    this.#flush();
    this.cursor = { ...(this.cursor ?? nothing), state: "end" };
    this.#records.push(mark(this.#body.uid, this.cursor, words));
    return "over";
  }
}

/** The state in which to go on after lines were lost, and the words that say so. */
export function gapAfter(
  uid: string,
  cursor: LogCursor,
): { readonly cursor: LogCursor; readonly said: LogRecord } {
  const gap = { ...cursor, state: "gap" } as const;
  return { cursor: gap, said: mark(uid, gap, "output may be missing here: the node rotated the log") };
}

/** `at`: this line, or piece, is the last that was given. */
function compare(line: LogPiece, cursor: LogCursor, counter: LogCounter): "before" | "at" | "missing" {
  if (line.second > cursor.base + 1n) return "missing";
  const { lines, pieces } = counter.seenSince(cursor.base);
  if (lines < cursor.lines || (lines === cursor.lines && pieces < cursor.pieces)) return "before";
  return line.at === cursor.at ? "at" : "missing";
}

function record(uid: string, cursor: LogCursor, at: bigint, bytes: Uint8Array): LogRecord {
  // Both streams come as one: the server can't tell them apart.
  return { cursor: writeCursor(uid, cursor), stream: "stdout", at: instant(at / 1000n), bytes };
}

function mark(uid: string, cursor: LogCursor, words: string): LogRecord {
  return record(uid, cursor, cursor.at, Buffer.from(`\n[holdfast: ${words}]\n`));
}
