import { HoldfastError } from "../core/errors.ts";
import { formatInstant, type Instant } from "../core/time.ts";
import type { LogLine } from "../wire/job.ts";

/**
 * A place in a job's output, which is read by attempt, phase, sandbox, chunk, and line in the chunk. A line
 * that was stored in parts (a prompt somebody waited for, or one longer than a chunk) comes as these parts.
 */
export interface LogPlace {
  readonly attempt: number;
  readonly phase: number;
  readonly sandbox: number;
  readonly seq: bigint;
  readonly line: number;
}

export function encodeLogCursor({ attempt, phase, sandbox, seq, line }: LogPlace): string {
  return Buffer.from(`1.${attempt}.${phase}.${sandbox}.${seq}.${line}`).toString("base64url");
}

const cursorPattern = /^1\.(\d{1,4})\.(\d{1,4})\.(\d{1,4})\.(\d{1,15})\.(\d{1,7})$/;

export function decodeLogCursor(cursor: string): LogPlace {
  const match = cursorPattern.exec(Buffer.from(cursor, "base64url").toString("latin1"));
  if (match === null) throw new HoldfastError("invalid_cursor", "the cursor is not one of a log line");
  const [, attempt, phase, sandbox, seq = "0", line] = match;
  return {
    attempt: Number(attempt),
    phase: Number(phase),
    sandbox: Number(sandbox),
    seq: BigInt(seq),
    line: Number(line),
  };
}

/** A sandbox of the job, as a part of the output. */
export interface LogSource {
  readonly attempt: number;
  readonly phase_number: number;
  readonly phase: string;
  readonly sandbox_ordinal: number;
  readonly sandbox_id: string;
  readonly settled: boolean;
}

/** Whether a source lies wholly before a place, so that nothing of it is left to read. */
export function isBefore(source: LogSource, place: LogPlace): boolean {
  const order = [source.attempt, source.phase_number, source.sandbox_ordinal];
  const from = [place.attempt, place.phase, place.sandbox];
  for (const [index, value] of order.entries()) {
    const other = from[index] ?? 0;
    if (value !== other) return value < other;
  }
  return false;
}

export function isAt(source: LogSource, place: LogPlace): boolean {
  return (
    source.attempt === place.attempt &&
    source.phase_number === place.phase &&
    source.sandbox_ordinal === place.sandbox
  );
}

/** The lines of a chunk after a place in it. */
export function linesOf(
  source: LogSource,
  chunk: { readonly seq: bigint; readonly stream: string; readonly at: Instant; readonly body: string },
  after: LogPlace | null,
): LogLine[] {
  const read = after !== null && isAt(source, after) && after.seq === chunk.seq ? after.line : 0;
  const texts = chunk.body.split("\n");
  if (texts.at(-1) === "") texts.pop();
  return texts.slice(read).map((text, index) => ({
    cursor: encodeLogCursor({
      attempt: source.attempt,
      phase: source.phase_number,
      sandbox: source.sandbox_ordinal,
      seq: chunk.seq,
      line: read + index + 1,
    }),
    attempt: source.attempt,
    phase: source.phase,
    stream: chunk.stream as LogLine["stream"], // held by log_chunks_stream
    at: formatInstant(chunk.at),
    text,
  }));
}
