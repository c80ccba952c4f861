import { type LogRecord, RuntimeRefusal } from "../../core/runtime.port.ts";
import { type Instant, instant } from "../../core/time.ts";
import type { Guard, OutputPart } from "./guard.ts";
import { hasEnded } from "./guard-state.ts";
import { ServiceError } from "./service-error.ts";

/** How far each stream was given. `end`: the mark of the bound was given, and nothing follows. */
interface Place {
  readonly out: number;
  readonly err: number;
  readonly end: boolean;
}

export interface OutputSource {
  readonly uid: string;
  readonly guard: Guard;
  readonly bytesMax: number;
}

const recordBytesMax = 64 * 1024;
const readingBytesMax = 1024 * 1024;
/** How long the guard waits for output before it answers that there is none. */
const followMs = 10_000;

/** A cursor is the id and two byte offsets, of bytes that were never decoded: it can stand inside a character. */
export function readCursor(cursor: string | null, uid: string): Place {
  if (cursor === null) return { out: 0, err: 0, end: false };
  const match = /^([A-Za-z0-9-]{1,64}):(\d{1,15}):(\d{1,15})(:end)?$/.exec(cursor);
  if (match?.[1] !== uid) throw new RuntimeRefusal("invalid", "the log cursor is not of this sandbox");
  return { out: Number(match[2]), err: Number(match[3]), end: match[4] !== undefined };
}

/**
 * Output as it stands on the sandbox's disk, both streams apart. Order holds within a stream; between the two it is
 * that of the readings. The guard's state is looked at before the sizes, so what is read after the end is all.
 */
export async function* readOutput(
  source: OutputSource,
  from: Place,
  follow: boolean,
  signal: AbortSignal,
): AsyncGenerator<LogRecord, void> {
  for (let place = from; !place.end; ) {
    const { answer, out, err } = await source.guard.read(
      place,
      readingBytesMax,
      follow ? followMs : 0,
      signal,
    );
    const before = place;
    for (const record of cut(source, place, out, err)) {
      place = record.place;
      yield { ...record.log, cursor: cursorOf(source.uid, place) };
      signal.throwIfAborted();
    }
    if (
      out.bytes.length < Math.min(out.size - before.out, 1) ||
      err.bytes.length < Math.min(err.size - before.err, 1)
    ) {
      throw new ServiceError(502, "", "output that was there can't be read");
    }
    const whole = place.out >= out.size && place.err >= err.size;
    if (whole && (!follow || hasEnded(answer.state))) return;
  }
}

interface CutRecord {
  readonly place: Place;
  readonly log: Omit<LogRecord, "cursor">;
}

/** Records of the same length wherever one begins, so that a resumed reading gives the same ones. */
function* cut(
  source: OutputSource,
  from: Place,
  out: OutputPart,
  err: OutputPart,
): Generator<CutRecord, void> {
  let place = from;
  for (const stream of ["out", "err"] as const) {
    const part = stream === "out" ? out : err;
    for (let at = 0; at < part.bytes.length; ) {
      const room = source.bytesMax - place.out - place.err;
      if (room <= 0) {
        const words = `\n[holdfast: truncated: output beyond ${source.bytesMax} bytes is not kept]\n`;
        yield { place: { ...place, end: true }, log: logOf("err", part, Buffer.from(words)) };
        return;
      }
      const bytes = part.bytes.subarray(at, at + Math.min(recordBytesMax, room));
      at += bytes.length;
      place = { ...place, [stream]: place[stream] + bytes.length };
      yield { place, log: logOf(stream, part, bytes) };
    }
  }
}

function logOf(stream: "out" | "err", part: OutputPart, bytes: Buffer): Omit<LogRecord, "cursor"> {
  return { stream: stream === "out" ? "stdout" : "stderr", at: timeOf(part), bytes: new Uint8Array(bytes) };
}

/** When the stream was last written to: the sandbox notes no time for each line. */
const timeOf = ({ changedAt }: OutputPart): Instant => instant(changedAt * 1_000_000n);

const cursorOf = (uid: string, { out, err, end }: Place): string =>
  `${uid}:${out}:${err}${end ? ":end" : ""}`;
