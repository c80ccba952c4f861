import type { JobId, TenantId } from "../core/ids.ts";
import { type Database, type Transaction, view } from "../core/postgres/transition.ts";
import type { LogLine } from "../wire/job.ts";
import { listAttempts, listLogSources, readLogChunks } from "./inspect.sql.ts";
import { getJob } from "./job.store.ts";
import { isAt, isBefore, type LogPlace, type LogSource, linesOf } from "./job-log.ts";

/** At most 64 KiB each. */
const chunksAtOnce = 16n;

export interface LogRequest {
  readonly tenant: TenantId;
  readonly job: JobId;
  readonly attempt: number | null;
  readonly phase: string | null;
  /** Go on until nothing more can come; otherwise what is stored now is all. */
  readonly follow: boolean;
}

export interface LogPart {
  readonly lines: readonly LogLine[];
  /** Nothing more will come. */
  readonly end: boolean;
}

/**
 * The lines after a place, some at a time; none and no end means: wait, and ask again. Followed, a sandbox's
 * output is read to its end before that of the next, so that nothing which is stored late is passed over.
 */
export function readLog(db: Database, request: LogRequest, after: LogPlace | null): Promise<LogPart> {
  const scope = { role: "gateway", tenant: request.tenant, name: "read log" } as const;
  return view(db, scope, async (tx) => {
    const over = await isOver(tx, request);
    const { job, attempt, phase } = request;
    const sources = await tx.run(listLogSources, { job, attempt, phase });
    for (const source of sources) {
      if (after !== null && isBefore(source, after)) continue;
      const lines = await linesAfter(tx, source, after);
      if (lines.length > 0) return { lines, end: false };
      if (request.follow && !over && !source.settled) return { lines: [], end: false };
    }
    return { lines: [], end: over || !request.follow };
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

async function linesAfter(tx: Transaction, source: LogSource, after: LogPlace | null): Promise<LogLine[]> {
  let from = after !== null && isAt(source, after) ? after.seq : 0n;
  for (;;) {
    const chunks = await tx.run(readLogChunks, {
      sandbox: source.sandbox_id,
      from_seq: from,
      limit: chunksAtOnce,
    });
    const lines = chunks.flatMap((chunk) => linesOf(source, chunk, after));
    const last = chunks.at(-1);
    if (lines.length > 0 || last === undefined || chunks.length < Number(chunksAtOnce)) return lines;
    // Chunks without a line of their own: go on behind them.
    from = last.seq + 1n;
  }
}
