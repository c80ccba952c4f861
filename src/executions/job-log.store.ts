import { HoldfastError } from "../core/errors.ts";
import type { JobId, TenantId } from "../core/ids.ts";
import { type Database, type Transaction, view } from "../core/postgres/transition.ts";
import { formatInstant, type Instant } from "../core/time.ts";
import { type LogArchive, lineCount, type StoredChunk } from "../sandboxes/log-archive.ts";
import type { LogLine } from "../wire/job.ts";
import {
  type ListLogSourcesRow,
  listAttempts,
  listLogSources,
  readLogChunks,
  readLogChunksBefore,
} from "./inspect.sql.ts";
import { getJob } from "./job.store.ts";
import { isAt, isBefore, type LogPlace, type LogSource, linesOf, placeIn, sinceOf } from "./job-log.ts";

/** At most 256 KiB each. */
const chunksAtOnce = 16n;

export interface LogRequest {
  readonly tenant: TenantId;
  readonly job: JobId;
  readonly attempt: number | null;
  readonly phase: string | null;
  /** Nothing that was written before it. */
  readonly since: Instant | null;
  /** Go on until nothing more can come; otherwise what is stored now is all. */
  readonly follow: boolean;
}

/** The output of a whole attempt, in its archive: of these sources, in order. */
export interface ArchivedPart {
  readonly attempt: number;
  readonly archive: LogArchive;
  readonly sources: readonly LogSource[];
}

/** One of them. No line and no archive and no end means: wait, and ask again. */
export interface LogPart {
  readonly lines: readonly LogLine[];
  readonly archived: ArchivedPart | null;
  /** Nothing more will come. */
  readonly end: boolean;
}

/** What of a job's output there is to be read. `gone` when the retention of all that was asked for has ended. */
async function readableSources(
  tx: Transaction,
  { job, attempt, phase }: LogRequest,
  more: boolean,
): Promise<ListLogSourcesRow[]> {
  const sources = await tx.run(listLogSources, { job, attempt, phase });
  const there = sources.filter(({ removed_at }) => removed_at === null);
  const [removed] = sources.filter(({ removed_at }) => removed_at !== null);
  if (!more && there.length === 0 && removed?.removed_at != null) {
    throw new HoldfastError("gone", `the output was removed at ${formatInstant(removed.removed_at)}`);
  }
  return there;
}

function archivedPart(sources: readonly ListLogSourcesRow[], of: ListLogSourcesRow): ArchivedPart | null {
  const { blob_key: key, blob_bytes: bytes, blob_sha256: sha256, attempt } = of;
  if (key === null || bytes === null || sha256 === null) return null;
  return {
    attempt,
    archive: { key, bytes, sha256 },
    sources: sources.filter((one) => one.attempt === attempt),
  };
}

/**
 * The lines after a place, some at a time, or the archive that has them. Read in one snapshot: an attempt's
 * output is in its chunks or in a recorded archive, whenever it moves (E19). Followed, a sandbox's output is read
 * to its end before that of the next, so that nothing which is stored late is passed over.
 */
export function readLog(db: Database, request: LogRequest, after: LogPlace | null): Promise<LogPart> {
  const scope = { role: "gateway", tenant: request.tenant, name: "read log" } as const;
  return view(db, scope, async (tx) => {
    const over = await isOver(tx, request);
    const sources = await readableSources(tx, request, request.follow && !over);
    for (const source of sources) {
      if (after !== null && isBefore(source, after)) continue;
      const archived = archivedPart(sources, source);
      if (archived !== null) return { lines: [], archived, end: false };
      const lines = await linesAfter(tx, source, request.since, after);
      if (lines.length > 0) return { lines, archived: null, end: false };
      if (request.follow && !over && !source.settled) return { lines: [], archived: null, end: false };
    }
    return { lines: [], archived: null, end: over || !request.follow };
  });
}

/** Whether an attempt that is followed, or the whole job, can print nothing more (E10: its logs are stored). */
async function isOver(tx: Transaction, { job, attempt }: LogRequest): Promise<boolean> {
  const { finished_at } = await getJob(tx, job);
  if (finished_at !== null) return true;
  if (attempt === null) return false;
  const rows = await tx.run(listAttempts, { job });
  return rows.some((row) => row.ordinal === attempt && row.finished_at !== null);
}

async function linesAfter(
  tx: Transaction,
  source: ListLogSourcesRow,
  since: Instant | null,
  after: LogPlace | null,
): Promise<LogLine[]> {
  let from = after !== null && isAt(source, after) ? after.seq : 0n;
  for (;;) {
    const chunks = await tx.run(readLogChunks, {
      sandbox: source.sandbox_id,
      from_seq: from,
      since,
      limit: chunksAtOnce,
    });
    const lines = chunks.flatMap((chunk) => linesOf(source, chunk, after));
    const last = chunks.at(-1);
    if (lines.length > 0 || last === undefined || chunks.length < Number(chunksAtOnce)) return lines;
    // Chunks without a line of their own: go on behind them.
    from = last.seq + 1n;
  }
}

/** What was found of the last lines of a job's output. */
export interface Tail {
  /** In front of them; null: not so many were found yet. */
  readonly place: LogPlace | null;
  /** How many are still to be found in front of what was looked at. */
  readonly missing: number;
  /** The next to look at, which is an archive. */
  readonly archived: ArchivedPart | null;
}

/** The last lines that are stored of attempts before one, back to the first archive on the way. */
export function findTail(
  db: Database,
  request: LogRequest,
  tail: { readonly lines: number; readonly beforeAttempt: number },
): Promise<Tail> {
  const scope = { role: "gateway", tenant: request.tenant, name: "find log tail" } as const;
  return view(db, scope, async (tx) => {
    const sources = await readableSources(tx, request, request.follow);
    let missing = tail.lines;
    for (const source of sources.toReversed()) {
      if (source.attempt >= tail.beforeAttempt) continue;
      const archived = archivedPart(sources, source);
      if (archived !== null) return { place: null, missing, archived };
      for await (const chunk of chunksBackwards(tx, source, request.since)) {
        const count = lineCount(chunk);
        if (count >= missing) {
          return { place: placeIn(source, chunk.seq, count - missing), missing: 0, archived: null };
        }
        missing -= count;
      }
    }
    return { place: null, missing, archived: null };
  });
}

async function* chunksBackwards(
  tx: Transaction,
  { sandbox_id: sandbox }: ListLogSourcesRow,
  since: Instant | null,
): AsyncGenerator<StoredChunk> {
  let before: bigint | null = null;
  for (;;) {
    const chunks: StoredChunk[] = await tx.run(readLogChunksBefore, {
      sandbox,
      before,
      since,
      limit: chunksAtOnce,
    });
    yield* chunks;
    const last = chunks.at(-1);
    if (last === undefined) return;
    before = last.seq;
  }
}

/** A moment in the past, by the database's clock, as the lines' own times are not. */
export function resolveSince(db: Database, tenant: TenantId, text: string): Promise<Instant> {
  return view(db, { role: "gateway", tenant, name: "read clock" }, (tx) =>
    Promise.resolve(sinceOf(text, tx.now)),
  );
}
