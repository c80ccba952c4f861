import { BlobRefusal, type BlobStore } from "../core/blob.port.ts";
import { HoldfastError } from "../core/errors.ts";
import type { Database } from "../core/postgres/transition.ts";
import type { Instant } from "../core/time.ts";
import { type ArchivedChunk, lineCount, openLogArchive } from "../sandboxes/log-archive.ts";
import type { LogLine } from "../wire/job.ts";
import { type ArchivedPart, findTail, type LogRequest } from "./job-log.store.ts";
import { behindAttempt, type LogPlace, type LogSource, linesOf, placeIn } from "./job-log.ts";

/** Lines are handed on together from so many characters on. */
const batchLengthMin = 65_536;

type Blobs = Pick<BlobStore, "read">;

/** The lines of an archive after a place, as they were read while it ran. `gone` when its bytes are. */
export async function openArchivedLines(
  blobs: Blobs,
  part: ArchivedPart,
  from: { readonly after: LogPlace | null; readonly since: Instant | null },
  signal: AbortSignal,
): Promise<AsyncIterable<LogLine[]>> {
  return batches(await openPart(blobs, part, from.since, signal), from.after);
}

async function* batches(
  chunks: AsyncIterable<PlacedChunk>,
  after: LogPlace | null,
): AsyncGenerator<LogLine[]> {
  let lines: LogLine[] = [];
  let length = 0;
  for await (const { source, chunk } of chunks) {
    for (const line of linesOf(source, chunk, after)) {
      lines.push(line);
      length += line.text.length + 1;
    }
    if (length < batchLengthMin) continue;
    yield lines;
    lines = [];
    length = 0;
  }
  if (lines.length > 0) yield lines;
}

/** The place in front of the last lines that are stored of a job's output; null: in front of all of them. */
export async function placeOfTail(
  db: Database,
  blobs: Blobs,
  request: LogRequest,
  lines: number,
  signal: AbortSignal,
): Promise<LogPlace | null> {
  let beforeAttempt = Number.POSITIVE_INFINITY;
  let missing = lines;
  for (;;) {
    const found = await findTail(db, request, { lines: missing, beforeAttempt });
    if (found.place !== null || found.archived === null) return found.place;
    const place = await placeInArchive(blobs, found.archived, found.missing, request.since, signal);
    if (typeof place !== "number") return place;
    missing = place;
    beforeAttempt = found.archived.attempt;
  }
}

/** Read once, keeping no more than the last chunks that have so many lines; or how many lines are missing still. */
async function placeInArchive(
  blobs: Blobs,
  part: ArchivedPart,
  lines: number,
  since: Instant | null,
  signal: AbortSignal,
): Promise<LogPlace | number> {
  if (lines === 0) return behindAttempt(part.attempt);
  let last: { readonly source: LogSource; readonly seq: bigint; readonly count: number }[] = [];
  let first = 0;
  let kept = 0;
  for await (const { source, chunk } of await openPart(blobs, part, since, signal)) {
    const count = lineCount(chunk);
    last.push({ source, seq: chunk.seq, count });
    kept += count;
    for (; kept - (last[first]?.count ?? 0) >= lines; first += 1) kept -= last[first]?.count ?? 0;
    if (first > lines) {
      last = last.slice(first);
      first = 0;
    }
  }
  const begin = last[first];
  if (begin === undefined || kept < lines) return lines - kept;
  return placeIn(begin.source, begin.seq, kept - lines);
}

interface PlacedChunk {
  readonly source: LogSource;
  readonly chunk: ArchivedChunk;
}

async function openPart(
  blobs: Blobs,
  part: ArchivedPart,
  since: Instant | null,
  signal: AbortSignal,
): Promise<AsyncIterable<PlacedChunk>> {
  const chunks = await openLogArchive(blobs, part.archive, signal).catch((error: unknown) => {
    if (!(error instanceof BlobRefusal) || error.reason !== "absent") throw error;
    throw new HoldfastError("gone", "the output is no longer there", { cause: error });
  });
  return placed(chunks, part.sources, since);
}

/** Those of the sources that were asked for. */
async function* placed(
  chunks: AsyncIterable<ArchivedChunk>,
  sources: readonly LogSource[],
  since: Instant | null,
): AsyncGenerator<PlacedChunk> {
  const asked = new Map(
    sources.map((source) => [`${source.phase_number}/${source.sandbox_ordinal}`, source]),
  );
  for await (const chunk of chunks) {
    const source = asked.get(`${chunk.step}/${chunk.sandbox}`);
    if (source !== undefined && (since === null || chunk.at >= since)) yield { source, chunk };
  }
}
