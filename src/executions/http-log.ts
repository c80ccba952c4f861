import { Type } from "typebox";
import { brandId, type JobId } from "../core/ids.ts";
import { type Gateway, type GatewayServer, principalOf } from "../http/gateway.ts";
import { problems } from "../http/openapi.ts";
import { type LiveResponse, openStream } from "../http/stream.ts";
import { openWaker } from "../http/waker.ts";
import { LogLine, PhaseName, Uuid } from "../wire/job.ts";
import { type LogPart, type LogRequest, readLog } from "./job-log.store.ts";
import { decodeLogCursor } from "./job-log.ts";

const LogQuery = Type.Object(
  {
    follow: Type.Optional(Type.Union([Type.Literal("true"), Type.Literal("false")])),
    attempt: Type.Optional(Type.String({ pattern: "^[12]$" })),
    phase: Type.Optional(PhaseName),
    /** The cursor of the last line that was read. */
    after: Type.Optional(Type.String({ minLength: 1, maxLength: 255 })),
    /** At most so many lines; go on with `after`. */
    limit: Type.Optional(Type.String({ pattern: "^[1-9][0-9]{0,6}$" })),
  },
  { additionalProperties: false },
);

export function logRoute(server: GatewayServer, gateway: Gateway): void {
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
          ...problems(400, 401, 403, 404, 429),
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
        follow: query.follow === "true",
      };
      const limit = query.limit === undefined ? Number.POSITIVE_INFINITY : Number(query.limit);
      const after = query.after ?? null;
      const waker = openWaker(gateway.doorbell);
      try {
        // Refused here, or not at all.
        const first = await readLog(gateway.db, asked, after === null ? null : decodeLogCursor(after));
        const live = openStream(gateway, request, reply, {
          contentType: "application/jsonl; charset=utf-8",
          onQuiet: () => "\n",
          onRefused: (problem) => `${JSON.stringify(problem)}\n`,
        });
        await writeLines(live, first, { limit, after, wait: () => waker.wait(live.signal) }, (place) =>
          readLog(gateway.db, asked, place === null ? null : decodeLogCursor(place)),
        ).catch((error: unknown) => live.fail(error));
        live.end();
      } finally {
        waker.close();
      }
      return reply;
    },
  );
}

async function writeLines(
  live: LiveResponse,
  first: LogPart,
  options: { readonly limit: number; readonly after: string | null; readonly wait: () => Promise<void> },
  read: (after: string | null) => Promise<LogPart>,
): Promise<void> {
  let { limit, after } = options;
  for (let part = first; !live.signal.aborted; part = await read(after)) {
    const lines = part.lines.slice(0, limit);
    if (lines.length > 0) {
      await live.write(lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
      after = lines.at(-1)?.cursor ?? after;
      limit -= lines.length;
    }
    if (part.end || limit === 0) return;
    if (lines.length === 0) await options.wait();
  }
}
