import { HoldfastError } from "../core/errors.ts";
import { formatInstant, type Instant, instant, parseDuration, parseInstant } from "../core/time.ts";
import { type StoredChunk, textsOf } from "../sandboxes/log-archive.ts";
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

/** The lines of a chunk after a place, which may be in it or wherever. */
export function linesOf(source: LogSource, chunk: StoredChunk, after: LogPlace | null): LogLine[] {
  let read = 0;
  if (after !== null) {
    if (isBefore(source, after)) return [];
    if (isAt(source, after)) {
      if (chunk.seq < after.seq) return [];
      if (chunk.seq === after.seq) read = after.line;
    }
  }
  const at = formatInstant(chunk.at);
  return textsOf(chunk)
    .slice(read)
    .map((text, index) => ({
      cursor: encodeLogCursor(placeIn(source, chunk.seq, read + index + 1)),
      attempt: source.attempt,
      phase: source.phase,
      stream: chunk.stream as LogLine["stream"], // held by log_chunks_stream
      at,
      text,
    }));
}

/** The place behind the first `line` lines of a chunk. */
export function placeIn(source: LogSource, seq: bigint, line: number): LogPlace {
  const { attempt, phase_number: phase, sandbox_ordinal: sandbox } = source;
  return { attempt, phase, sandbox, seq, line };
}

export function compareLogPlaces(one: LogPlace, other: LogPlace): number {
  const keys = ["attempt", "phase", "sandbox", "seq", "line"] as const;
  for (const key of keys) {
    if (one[key] !== other[key]) return one[key] < other[key] ? -1 : 1;
  }
  return 0;
}

/** Behind everything of an attempt. */
export const behindAttempt = (attempt: number): LogPlace => ({
  attempt: attempt + 1,
  phase: 0,
  sandbox: 0,
  seq: 0n,
  line: 0,
});

/** `since` as people write it: how long ago (`10m`), or an instant (RFC 3339). */
export function sinceOf(text: string, now: Instant): Instant {
  const ago = parseDuration(text);
  if (ago !== undefined) return instant(now - ago);
  const [, local, fraction = "", sign, hours = "0", minutes = "0"] =
    /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,6})?(?:Z|([+-])(\d\d):(\d\d))$/i.exec(text) ?? [];
  if (local === undefined) {
    throw new HoldfastError("invalid_request", `${text} is neither a duration nor an instant`, {
      fields: [{ pointer: "/since", message: "write 10m or 2026-01-02T03:04:05Z" }],
    });
  }
  const offset = (BigInt(hours) * 60n + BigInt(minutes)) * 60_000_000n;
  return instant(parseInstant(`${local.toUpperCase()}${fraction}Z`) - (sign === "-" ? -offset : offset));
}
