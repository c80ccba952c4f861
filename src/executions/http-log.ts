import { Type } from "typebox";
import type { BlobStore } from "../core/blob.port.ts";
import { HoldfastError } from "../core/errors.ts";
import { brandId, type JobId } from "../core/ids.ts";
import { type Database, view } from "../core/postgres/transition.ts";
import { type Gateway, type GatewayServer, principalOf } from "../http/gateway.ts";
import { problems } from "../http/openapi.ts";
import { type LiveResponse, openStream } from "../http/stream.ts";
import { openWaker } from "../http/waker.ts";
import { LogLine, PhaseName, Uuid } from "../wire/job.ts";
import { getJobSpec } from "./job.store.ts";
import { type LogRequest, readLog, resolveSince } from "./job-log.store.ts";
import { behindAttempt, compareLogPlaces, decodeLogCursor, type LogPlace } from "./job-log.ts";
import { openArchivedLines, placeOfTail } from "./job-log-archive.ts";

const LogQuery = Type.Object(
  {
    follow: Type.Optional(Type.Union([Type.Literal("true"), Type.Literal("false")])),
    attempt: Type.Optional(Type.String({ pattern: "^[12]$" })),
    phase: Type.Optional(PhaseName),
    /** The cursor of the last line that was read. */
    after: Type.Optional(Type.String({ minLength: 1, maxLength: 255 })),
    /** At most so many lines; go on with `after`. */
    limit: Type.Optional(
      Type.String({ pattern: "^[1-9][0-9]{0,6}$", description: "a whole number from 1 to 9999999" }),
    ),
    /** Nothing older: a duration (`10m`: so long ago) or an instant (RFC 3339). */
    since: Type.Optional(Type.String({ minLength: 2, maxLength: 64 })),
    /** Only the last so many of the lines that are stored now; followed, also what comes after them. */
    tail: Type.Optional(Type.String({ pattern: "^(0|[1-9][0-9]{0,5})$" })),
  },
  { additionalProperties: false },
);

export function logRoute(server: GatewayServer, gateway: Gateway, blobs: BlobStore): void {
  server.get(
    "/v1/jobs/:id/logs",
    {
      exposeHeadRoute: false,
      config: { scope: "jobs:read" },
      schema: {
        operationId: "readLogs",
        summary: "Its output, a JSON object a line; with `follow=true` until nothing more can come",
        tags: ["jobs"],
        params: Type.Object({ id: Uuid }, { additionalProperties: false }),
        querystring: LogQuery,
        response: {
          200: { description: "Lines", content: { "application/jsonl": { schema: LogLine } } },
          ...problems(400, 401, 403, 404, 410, 429),
        },
      },
    },
    async (request, reply) => {
      const { tenant } = principalOf(request);
      const { query } = request;
      const asked: LogRequest = {
        tenant,
        job: brandId<JobId>(request.params.id),
        attempt: query.attempt === undefined ? null : Number(query.attempt),
        phase: query.phase ?? null,
        since: query.since === undefined ? null : await resolveSince(gateway.db, tenant, query.since),
        follow: query.follow === "true",
      };
      if (asked.phase !== null) await assertPhase(gateway.db, asked, asked.phase);
      const gone = new AbortController();
      reply.raw.once("close", () => gone.abort());
      const source = { db: gateway.db, blobs, asked, signal: gone.signal };
      const limit = query.limit === undefined ? Number.POSITIVE_INFINITY : Number(query.limit);
      const waker = openWaker(gateway.doorbell);
      try {
        // Refused here, or not at all.
        const after = await startOf(source, query);
        const first = await openPart(source, after);
        const live = openStream(gateway, request, reply, {
          contentType: "application/jsonl; charset=utf-8",
          onQuiet: () => "\n",
          onRefused: (problem) => `${JSON.stringify(problem)}\n`,
        });
        const wait = () => waker.wait(live.signal);
        await writeLines(live, source, { first, after, limit, wait }).catch((error: unknown) =>
          live.fail(error),
        );
        live.end();
      } finally {
        waker.close();
      }
      return reply;
    },
  );
}

/** A name that the job has no phase of would be followed in vain. */
async function assertPhase(db: Database, { tenant, job }: LogRequest, phase: string): Promise<void> {
  const { spec } = await view(db, { role: "gateway", tenant, name: "read phases" }, (tx) =>
    getJobSpec(tx, job),
  );
  const names = spec.phases.map(({ name }) => name);
  if (names.includes(phase)) return;
  throw new HoldfastError("not_found", `the job has no phase ${phase}; it has ${names.join(", ")}`);
}

interface Source {
  readonly db: Database;
  readonly blobs: BlobStore;
  readonly asked: LogRequest;
  /** Aborts when the reader has gone. */
  readonly signal: AbortSignal;
}

/** Where to begin: after a line that was read, or in front of the last ones. */
async function startOf(
  { db, blobs, asked, signal }: Source,
  query: { readonly after?: string; readonly tail?: string },
): Promise<LogPlace | null> {
  const after = query.after === undefined ? null : decodeLogCursor(query.after);
  if (query.tail === undefined) return after;
  const place = await placeOfTail(db, blobs, asked, Number(query.tail), signal);
  if (after === null || place === null) return after ?? place;
  return compareLogPlaces(after, place) > 0 ? after : place;
}

interface Part {
  readonly batches: AsyncIterable<readonly LogLine[]> | Iterable<readonly LogLine[]>;
  /** Where to go on after it when it had nothing, or null: from where it began. */
  readonly behind: LogPlace | null;
  /** Nothing was there: wait before asking again. */
  readonly empty: boolean;
  readonly end: boolean;
}

/** What comes after a place: some lines that are stored, or an archive with all that is left of an attempt. */
async function openPart({ db, blobs, asked, signal }: Source, after: LogPlace | null): Promise<Part> {
  const { lines, archived, end } = await readLog(db, asked, after);
  if (archived === null) return { batches: [lines], behind: null, empty: lines.length === 0, end };
  const batches = await openArchivedLines(blobs, archived, { after, since: asked.since }, signal);
  return { batches, behind: behindAttempt(archived.attempt), empty: false, end: false };
}

async function writeLines(
  live: LiveResponse,
  source: Source,
  start: {
    readonly first: Part;
    readonly after: LogPlace | null;
    readonly limit: number;
    readonly wait: () => Promise<void>;
  },
): Promise<void> {
  let { limit, after } = start;
  for (let part = start.first; ; part = await openPart(source, after)) {
    for await (const batch of part.batches) {
      if (live.signal.aborted) return;
      const lines = batch.slice(0, limit);
      const last = lines.at(-1);
      if (last === undefined) continue;
      await live.write(lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
      after = decodeLogCursor(last.cursor);
      limit -= lines.length;
      if (limit === 0) return;
    }
    if (part.end || live.signal.aborted) return;
    after = part.behind ?? after;
    if (part.empty) await start.wait();
    if (live.signal.aborted) return;
  }
}
