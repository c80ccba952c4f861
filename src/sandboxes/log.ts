import type { LogRecord } from "../core/runtime.port.ts";
import type { Instant } from "../core/time.ts";
import { type LogStream, logStream } from "./log-stream.ts";
import { secretForms } from "./secret.ts";
import { secretMatcher } from "./secret-matcher.ts";

/**
 * Output on its way from a sandbox to the database (E15): bytes become text that can be stored and shown,
 * secrets become `***`, and nothing is cut inside a character or inside a secret.
 *
 * The assembler remembers how far it got as a *position*: the runtime's cursor before the first record that
 * isn't fully stored, and how many bytes of each stream after it are stored already. Whoever goes on from a
 * stored position stores exactly what was missing, so a controller may die between any two steps.
 */
export interface LogChunk {
  readonly stream: "stdout" | "stderr" | "system";
  readonly at: Instant;
  readonly text: string;
}

export interface LogAssembler {
  push(record: LogRecord): void;
  /** What can be stored now. `all`: also unfinished lines, because a person waits or nothing more will come. */
  take(all: "lines" | "partial" | "end"): { readonly chunks: LogChunk[]; readonly position: string | null };
  /** Bytes pushed and not yet taken. Bounded by whoever pushes: take when it passes 1 MiB. */
  pending(): number;
}

type Stream = LogRecord["stream"];

export function logAssembler(options: {
  readonly secrets: readonly string[];
  readonly position: string | null;
}): LogAssembler {
  const matcher = secretMatcher(secretForms(options.secrets));
  const start = parsePosition(options.position);
  const waiting: Record<Stream, LogStream> = { stdout: logStream(matcher), stderr: logStream(matcher) };
  const lastAt: Partial<Record<Stream, Instant>> = {};
  /** Bytes of each stream after `before` that are stored, or are to be skipped because they were. */
  const done: Record<Stream, number> = { stdout: start.stdout, stderr: start.stderr };
  const skip: Record<Stream, number> = { stdout: start.stdout, stderr: start.stderr };
  let records: { readonly cursor: string; readonly stream: Stream; readonly bytes: number }[] = [];
  let before = start.cursor;

  function advance(): void {
    // Records at the front that are stored whole no longer need to be read again.
    let stored = 0;
    for (const { stream, bytes, cursor } of records) {
      if (done[stream] < bytes) break;
      done[stream] -= bytes;
      before = cursor;
      stored += 1;
    }
    records = records.slice(stored);
  }

  return {
    push(record) {
      const { cursor, stream, bytes } = record;
      records.push({ cursor, stream, bytes: bytes.length });
      const skipped = Math.min(skip[stream], bytes.length);
      skip[stream] -= skipped;
      lastAt[stream] = record.at;
      if (skipped < bytes.length) waiting[stream].push(bytes.subarray(skipped));
    },
    take(all) {
      const chunks: LogChunk[] = [];
      for (const stream of ["stdout", "stderr"] as const) {
        const at = lastAt[stream];
        if (at === undefined) continue;
        for (let part = waiting[stream].cut(all); part !== null; part = waiting[stream].cut(all)) {
          chunks.push({ stream, at, text: clean(part.bytes) });
          done[stream] += part.size;
        }
      }
      advance();
      return { chunks, position: formatPosition({ cursor: before, ...done }) };
    },
    pending: () => waiting.stdout.length + waiting.stderr.length,
  };
}

const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

function clean(bytes: Buffer): string {
  // Invalid UTF-8 becomes U+FFFD; control characters become visible ones, except tab, newline, and colour (SGR).
  return decoder
    .decode(bytes)
    .replaceAll("\r\n", "\n")
    .replace(controls, (character, offset: number, text: string) => {
      if (character === "\r") return "\n";
      if (character === "\u001b" && colour.test(text.slice(offset, offset + 24))) return character;
      const code = character.charCodeAt(0);
      return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? "\u2421" : "\ufffd";
    });
}

// oxlint-disable-next-line no-control-regex -- control characters are what this looks for
const controls = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
// oxlint-disable-next-line no-control-regex -- an escape sequence begins with one
const colour = /^\u001b\[[0-9;]{0,16}m/;

interface Position {
  readonly cursor: string | null;
  readonly stdout: number;
  readonly stderr: number;
}

function formatPosition({ cursor, stdout, stderr }: Position): string | null {
  return cursor === null && stdout === 0 && stderr === 0 ? null : `${stdout}.${stderr}.${cursor ?? ""}`;
}

function parsePosition(position: string | null): Position {
  const match = position === null ? null : /^(\d+)\.(\d+)\.(.*)$/.exec(position);
  if (match === null) return { cursor: null, stdout: 0, stderr: 0 };
  return { cursor: match[3] || null, stdout: Number(match[1]), stderr: Number(match[2]) };
}

/** The runtime's own cursor from which a stored position reads on. */
export function readFrom(position: string | null): string | null {
  return parsePosition(position).cursor;
}
