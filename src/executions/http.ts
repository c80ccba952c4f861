import { Type } from "typebox";
import type { BlobStore } from "../core/blob.port.ts";
import type { Answer } from "../core/command.ts";
import { brandId, type JobId } from "../core/ids.ts";
import { blockedIn } from "../http/blocked.ts";
import { type Gateway, type GatewayServer, principalOf, type Routes } from "../http/gateway.ts";
import { command, sendAnswer } from "../http/idempotency.ts";
import { LabelQuery, labelsOf, oneOrMore } from "../http/label-query.ts";
import { look } from "../http/look.ts";
import { problems } from "../http/openapi.ts";
import { decodePageToken, encodePageToken, PageLimit, PageToken, pageLimitOf } from "../http/page-token.ts";
import { checkVersion, etagOf, parseIfMatch, requireIfMatch } from "../http/preconditions.ts";
import { listCursor } from "../http/watch.ts";
import {
  ArtifactView,
  AttemptPlanView,
  AttemptView,
  JobCancellation,
  JobPatch,
  JobSpec,
  JobState,
  JobSubmission,
  JobView,
  Name,
  Uuid,
} from "../wire/job.ts";
import { checkSubmission } from "../wire/submission.ts";
import { artifactRoute } from "./http-artifact.ts";
import { logRoute } from "./http-log.ts";
import {
  inspectArtifacts,
  inspectAttempt,
  inspectAttempts,
  inspectPlan,
  neededRuntime,
} from "./inspect.store.ts";
import {
  cancelJob,
  getJob,
  getJobSpec,
  type JobFilter,
  type JobRow,
  jobView,
  listJobs,
  patchJob,
  submitJob,
} from "./job.store.ts";

const closed = { additionalProperties: false } as const;
const JobParams = Type.Object({ id: Uuid }, closed);

const JobQuery = Type.Object(
  {
    state: oneOrMore(JobState, 5),
    label: LabelQuery,
    name: Type.Optional(Name),
    limit: Type.Optional(PageLimit),
    page_token: Type.Optional(PageToken),
  },
  closed,
);
const JobPage = Type.Object(
  {
    items: Type.Array(JobView),
    next_page_token: Type.Union([Type.String(), Type.Null()]),
    cursor: Type.String(),
  },
  { ...closed, title: "JobPage" },
);

/** The routes of jobs and all that belongs to them. */
export function jobRoutes(options: { readonly blobs: BlobStore; readonly queueMax: number }): Routes {
  return (server, gateway) => {
    submitRoute(server, gateway, options.queueMax);
    listRoute(server, gateway);
    readRoutes(server, gateway);
    patchRoute(server, gateway);
    cancelRoute(server, gateway);
    logRoute(server, gateway, options.blobs);
    artifactRoute(server, gateway, options.blobs);
  };
}

const pathOf = (id: string) => `/v1/jobs/${id}`;
const answer = (status: number, row: JobRow): Answer => ({
  status,
  body: jobView(row),
  etag: etagOf(row.resource_version),
});

function submitRoute(server: GatewayServer, gateway: Gateway, queueMax: number): void {
  server.post(
    "/v1/jobs",
    {
      config: { scope: "jobs:write" },
      schema: {
        operationId: "submitJob",
        summary: "Put a job into the queue",
        tags: ["jobs"],
        body: JobSubmission,
        response: { 201: JobView, ...problems(400, 401, 403, 409, 413, 415, 429) },
      },
    },
    async (request, reply) => {
      const submission = checkSubmission(request.body);
      const mutation = {
        schema: "jobs.submit.v1",
        operation: "jobs.submit",
        target: "/v1/jobs",
        creates: true,
      } as const;
      const submitted = await command(gateway, request, mutation, async (tx) =>
        answer(201, await submitJob(tx, { submission, queueMax })),
      );
      void reply.header("location", pathOf((submitted.body as JobView).id));
      return sendAnswer(reply, submitted);
    },
  );
}

function listRoute(server: GatewayServer, gateway: Gateway): void {
  server.get(
    "/v1/jobs",
    {
      config: { scope: "jobs:read" },
      schema: {
        operationId: "listJobs",
        summary: "Jobs, newest first; watch from `cursor` to miss nothing that changes after",
        tags: ["jobs"],
        querystring: JobQuery,
        response: { 200: JobPage, ...problems(400, 401, 403) },
      },
    },
    async (request) => {
      const { tenant } = principalOf(request);
      const { query } = request;
      const filter = filterOf(query);
      const bound = { list: "jobs", tenant, ...filter };
      const start = query.page_token === undefined ? null : decodePageToken(bound, query.page_token);
      const limit = pageLimitOf(query.limit, gateway.limits);
      return look(gateway, request, async (tx) => {
        const after = start === null ? null : { createdAt: start.at, job: brandId<JobId>(start.id) };
        const { jobs, next } = await listJobs(tx, filter, { after, limit });
        return {
          items: jobs.map(jobView),
          next_page_token:
            next === null ? null : encodePageToken(bound, { at: next.createdAt, id: next.job }),
          cursor: await listCursor(tx, tenant),
        };
      });
    },
  );
}

function filterOf(query: Type.Static<typeof JobQuery>): JobFilter {
  return {
    states: [...new Set([query.state ?? []].flat())].sort(),
    labels: labelsOf(query.label),
    name: query.name ?? null,
  };
}

function readRoutes(server: GatewayServer, gateway: Gateway): void {
  const describe = (operationId: string, summary: string, found: Type.TSchema) => ({
    config: { scope: "jobs:read" } as const,
    schema: {
      operationId,
      summary,
      tags: ["jobs"],
      params: JobParams,
      response: { 200: found, ...problems(401, 403, 404) },
    },
  });
  const list = <T extends Type.TSchema>(item: T) => Type.Object({ items: Type.Array(item) }, closed);

  server.get("/v1/jobs/:id", describe("getJob", "A job", JobView), async (request, reply) => {
    const { row, blocked } = await look(gateway, request, async (tx) => {
      const row = await getJob(tx, jobOf(request.params));
      const needed = await neededRuntime(tx, row);
      return { row, blocked: needed === undefined ? {} : (await blockedIn(tx))(needed) };
    });
    return reply.header("etag", etagOf(row.resource_version)).send({ ...jobView(row), ...blocked });
  });
  server.get("/v1/jobs/:id/spec", describe("getJobSpec", "Its spec, as submitted", JobSpec), (request) =>
    look(gateway, request, async (tx) => (await getJobSpec(tx, jobOf(request.params))).spec),
  );
  server.get(
    "/v1/jobs/:id/attempts",
    describe("listAttempts", "Its attempts, with their phases, pins and sandboxes", list(AttemptView)),
    (request) =>
      look(gateway, request, async (tx) => ({ items: await inspectAttempts(tx, jobOf(request.params)) })),
  );
  server.get(
    "/v1/jobs/:id/artifacts",
    describe("listArtifacts", "What it published", list(ArtifactView)),
    (request) =>
      look(gateway, request, async (tx) => ({ items: await inspectArtifacts(tx, jobOf(request.params)) })),
  );
  const AttemptParams = Type.Object({ id: Uuid, attempt: Type.String({ pattern: "^[12]$" }) }, closed);
  server.get(
    "/v1/jobs/:id/attempts/:attempt",
    {
      config: { scope: "jobs:read" },
      schema: {
        operationId: "getAttempt",
        summary: "One of its attempts",
        tags: ["jobs"],
        params: AttemptParams,
        response: { 200: AttemptView, ...problems(401, 403, 404) },
      },
    },
    (request) => {
      const { id, attempt } = request.params;
      return look(gateway, request, (tx) => inspectAttempt(tx, brandId<JobId>(id), Number(attempt)));
    },
  );
  server.get(
    "/v1/jobs/:id/attempts/:attempt/plan",
    {
      config: { scope: "jobs:read" },
      schema: {
        operationId: "getAttemptPlan",
        summary: "What it was going to do, kept for good",
        tags: ["jobs"],
        params: AttemptParams,
        response: { 200: AttemptPlanView, ...problems(401, 403, 404) },
      },
    },
    (request) => {
      const { id, attempt } = request.params;
      return look(gateway, request, (tx) => inspectPlan(tx, brandId<JobId>(id), Number(attempt)));
    },
  );
}

const jobOf = (params: { readonly id: string }) => brandId<JobId>(params.id);

function patchRoute(server: GatewayServer, gateway: Gateway): void {
  server.patch(
    "/v1/jobs/:id",
    {
      config: { scope: "jobs:write" },
      schema: {
        operationId: "patchJob",
        summary: "Change labels, and the priority while it waits (merge patch); needs If-Match",
        tags: ["jobs"],
        params: JobParams,
        body: JobPatch,
        response: { 200: JobView, ...problems(400, 401, 403, 404, 409, 412, 413, 415, 428) },
      },
    },
    async (request, reply) => {
      const job = jobOf(request.params);
      const condition = parseIfMatch(request.headers["if-match"]);
      const mutation = { schema: "jobs.patch.v1", operation: "jobs.patch", target: pathOf(job) };
      const patched = await command(gateway, request, mutation, async (tx) => {
        const precondition = (version: bigint) => checkVersion(requireIfMatch(condition), version);
        return answer(200, await patchJob(tx, { job, patch: request.body, precondition }));
      });
      return sendAnswer(reply, patched);
    },
  );
}

function cancelRoute(server: GatewayServer, gateway: Gateway): void {
  server.post(
    "/v1/jobs/:id(^[^:/]+)::cancel",
    {
      config: { scope: "jobs:write" },
      schema: {
        operationId: "cancelJob",
        summary: "Cancel it: at once while it waits, else as soon as what runs is stopped",
        tags: ["jobs"],
        params: JobParams,
        body: Type.Union([JobCancellation, Type.Null()]),
        response: { 202: JobView, ...problems(400, 401, 403, 404, 409, 412, 413, 415) },
      },
    },
    async (request, reply) => {
      const job = jobOf(request.params);
      const condition = parseIfMatch(request.headers["if-match"]);
      const mutation = { schema: "jobs.cancel.v1", operation: "jobs.cancel", target: pathOf(job) };
      const cancelled = await command(gateway, request, mutation, async (tx) =>
        answer(
          202,
          await cancelJob(tx, {
            job,
            reason: request.body?.reason ?? "requested",
            precondition: (version) => checkVersion(condition, version),
          }),
        ),
      );
      return sendAnswer(reply, cancelled);
    },
  );
}
