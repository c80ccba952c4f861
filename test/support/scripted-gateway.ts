import type { ServerResponse } from "node:http";
import type { ArtifactView, AttemptView, JobView, LogLine } from "../../src/wire/job.ts";
import { artifactView, attemptView, finishedAt, jobId, jobView, logLine, planView } from "./job-views.ts";
import {
  type Script,
  type ScriptedServer,
  scriptedServer,
  sendJson,
  sendProblem,
} from "./scripted-server.ts";

/** What the gateway knows. A test changes it to make something happen. */
export interface GatewayFacts {
  jobs: JobView[];
  attempts: AttemptView[];
  lines: LogLine[];
  artifacts: ArtifactView[];
  content: Buffer;
  /** How the job that is followed ends, once its lines were read; null: it never does. */
  end: Partial<JobView> | null;
}

export interface ScriptedGateway extends ScriptedServer {
  readonly facts: GatewayFacts;
  /** For the command line: address and token. */
  readonly env: Readonly<Record<string, string>>;
}

/** One job on a gateway's routes: enough for what reads them, and nothing of how they come about. */
export async function scriptedGateway(
  t: { readonly after: (hook: () => Promise<void>) => void },
  facts: Partial<GatewayFacts> = {},
  before: Script = () => undefined,
): Promise<ScriptedGateway> {
  const known: GatewayFacts = {
    jobs: [jobView()],
    attempts: [attemptView()],
    lines: [logLine(1), logLine(2)],
    artifacts: [],
    content: Buffer.from("bytes"),
    end: { state: "succeeded", finished_at: finishedAt },
    ...facts,
  };
  const watchers = new Set<ServerResponse>();
  const server = await scriptedServer(t, async (request, response) => {
    await before(request, response);
    if (response.headersSent) return;
    const { method, path, query } = request;
    const [job] = known.jobs;
    if (method === "POST" && path === "/v1/jobs") return sendJson(response, 201, job);
    if (path === "/v1/jobs")
      return sendJson(response, 200, { items: known.jobs, next_page_token: null, cursor: "w0" });
    if (path === "/v1/watch") {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write('id: w1\nevent: bookmark\ndata: {"cursor":"w1"}\n\n');
      watchers.add(response);
      return;
    }
    const [, , , id = "", part, name] = path.split("/");
    const found = known.jobs.find((one) => one.id === id.replace(/:cancel$/, ""));
    if (found === undefined) return sendProblem(response, 404, "not_found", { detail: `no job ${id}` });
    if (id.endsWith(":cancel")) {
      const { reason = null } = JSON.parse(request.body) as { reason?: string };
      return sendJson(response, 202, { ...found, cancel_requested_at: finishedAt, cancel_reason: reason });
    }
    switch (part) {
      case undefined:
        if (method === "PATCH") return sendJson(response, 200, { ...found, resource_version: "8" });
        return sendJson(response, 200, found);
      case "attempts":
        if (path.endsWith("/plan")) return sendJson(response, 200, planView(Number(name)));
        return sendJson(response, 200, { items: known.attempts });
      case "artifacts":
        if (name === undefined) return sendJson(response, 200, { items: known.artifacts });
        return void response.writeHead(200).end(known.content);
      case "logs": {
        const after = known.lines.findIndex(({ cursor }) => cursor === query.get("after"));
        const text = known.lines.slice(after + 1).map((line) => `${JSON.stringify(line)}\n`);
        response.writeHead(200, { "content-type": "application/jsonl" }).write(`\n${text.join("")}`);
        if (query.get("follow") === null) return void response.end();
        if (known.end === null) return;
        known.jobs = known.jobs.map((one) => (one.id === found.id ? { ...one, ...known.end } : one));
        const change = {
          cursor: "w2",
          kind: "job",
          id: found.id,
          operation: "finished",
          at: finishedAt,
          resource_version: "8",
        };
        for (const watcher of watchers) {
          watcher.write(`id: w2\nevent: finished\ndata: ${JSON.stringify(change)}\n\n`);
        }
        return void response.end();
      }
      default:
        return sendProblem(response, 404, "not_found");
    }
  });
  return { ...server, facts: known, env: { HOLDFAST_URL: server.url, HOLDFAST_TOKEN: "hft_test" } };
}

export { artifactView, attemptView, finishedAt, jobId, jobView, logLine };
