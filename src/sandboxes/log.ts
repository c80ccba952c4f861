import type { LogRecord } from "../core/runtime.port.ts";
import type { Instant } from "../core/time.ts";

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

const chunkBytesMax = 65_536;
const mask = "***";
/** Shorter values would mask half of any text; they are not secrets worth the name. */
const secretLengthMin = 4;

type Stream = LogRecord["stream"];

export function logAssembler(options: {
  readonly secrets: readonly string[];
  readonly position: string | null;
}): LogAssembler {
  const secrets = options.secrets
    .filter((secret) => secret.length >= secretLengthMin)
    .map((secret) => Buffer.from(secret))
    .sort((a, b) => b.length - a.length);
  const start = parsePosition(options.position);
  const waiting: Record<Stream, Buffer[]> = { stdout: [], stderr: [] };
  const length: Record<Stream, number> = { stdout: 0, stderr: 0 };
  const lastAt: Partial<Record<Stream, Instant>> = {};
  /** Bytes of each stream after `before` that are stored, or are to be skipped because they were. */
  const done: Record<Stream, number> = { stdout: start.stdout, stderr: start.stderr };
  const skip: Record<Stream, number> = { stdout: start.stdout, stderr: start.stderr };
  const records: { readonly cursor: string; readonly stream: Stream; readonly bytes: number }[] = [];
  let before = start.cursor;

  function advance(): void {
    // Records at the front that are stored whole no longer need to be read again.
    for (
      let first = records[0];
      first !== undefined && done[first.stream] >= first.bytes;
      first = records[0]
    ) {
      done[first.stream] -= first.bytes;
      before = first.cursor;
      records.shift();
    }
  }

  return {
    push(record) {
      records.push({ cursor: record.cursor, stream: record.stream, bytes: record.bytes.length });
      const skipped = Math.min(skip[record.stream], record.bytes.length);
      skip[record.stream] -= skipped;
      lastAt[record.stream] = record.at;
      if (skipped < record.bytes.length) {
        waiting[record.stream].push(Buffer.from(record.bytes.subarray(skipped)));
        length[record.stream] += record.bytes.length - skipped;
      }
    },
    take(all) {
      const chunks: LogChunk[] = [];
      for (const stream of ["stdout", "stderr"] as const) {
        const at = lastAt[stream];
        if (at === undefined || length[stream] === 0) continue;
        let rest: Buffer = Buffer.concat(waiting[stream]);
        for (let cut = cutPoint(rest, secrets, all); cut > 0; cut = cutPoint(rest, secrets, all)) {
          chunks.push({ stream, at, text: clean(rest.subarray(0, cut), secrets) });
          done[stream] += cut;
          rest = rest.subarray(cut);
        }
        waiting[stream] = rest.length === 0 ? [] : [rest];
        length[stream] = rest.length;
      }
      advance();
      return { chunks, position: formatPosition({ cursor: before, ...done }) };
    },
    pending: () => length.stdout + length.stderr,
  };
}

/** How many bytes from the front may be stored now; 0 when none. */
function cutPoint(bytes: Buffer, secrets: readonly Buffer[], all: "lines" | "partial" | "end"): number {
  if (bytes.length === 0) return 0;
  let cut = Math.min(bytes.length, chunkBytesMax);
  if (all !== "end") cut = Math.min(cut, secretStart(bytes, secrets));
  const newline = bytes.lastIndexOf(0x0a, cut - 1);
  const full = cut === chunkBytesMax;
  if (newline >= 0 && cut > 0) cut = newline + 1;
  else if (!full && all === "lines") return 0;
  // A secret that lies across the cut stays whole, for the next chunk.
  for (const secret of secrets) {
    for (let at = bytes.indexOf(secret); at >= 0 && at < cut; at = bytes.indexOf(secret, at + 1)) {
      if (at + secret.length > cut) cut = at === 0 ? Math.min(secret.length, bytes.length) : at;
    }
  }
  return cut === bytes.length && all === "end" ? cut : characterBoundary(bytes, cut);
}

/** Where, at the end, a secret may have begun that isn't all here yet. */
function secretStart(bytes: Buffer, secrets: readonly Buffer[]): number {
  let earliest = bytes.length;
  for (const secret of secrets) {
    for (let size = Math.min(secret.length - 1, bytes.length); size > 0; size -= 1) {
      if (bytes.subarray(bytes.length - size).equals(secret.subarray(0, size))) {
        earliest = Math.min(earliest, bytes.length - size);
        break;
      }
    }
  }
  return earliest;
}

/** The last position up to `cut` that is not inside a UTF-8 sequence that may still be completed. */
function characterBoundary(bytes: Buffer, cut: number): number {
  for (let back = 1; back <= Math.min(3, cut); back += 1) {
    const byte = bytes[cut - back] ?? 0;
    if (byte < 0x80) break;
    if (byte >= 0xc0) {
      const size = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
      return size > back ? cut - back : cut;
    }
  }
  return cut;
}

const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

function clean(bytes: Buffer, secrets: readonly Buffer[]): string {
  let masked = bytes;
  for (const secret of secrets) {
    const parts: Buffer[] = [];
    let from = 0;
    for (let at = masked.indexOf(secret); at >= 0; at = masked.indexOf(secret, from)) {
      parts.push(masked.subarray(from, at), Buffer.from(mask));
      from = at + secret.length;
    }
    if (from > 0) masked = Buffer.concat([...parts, masked.subarray(from)]);
  }
  // Invalid UTF-8 becomes U+FFFD; control characters become visible ones, except tab, newline, and colour (SGR).
  return decoder
    .decode(masked)
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
