import type {
  ArtifactView,
  AttemptPlanView,
  AttemptView,
  ChangeEvent,
  JobPatch,
  JobSpec,
  JobSubmission,
  JobView,
  LogLine,
} from "../wire/job.ts";
import { type AgentCalls, agentCalls } from "./agents.ts";
import { ApiError, unexpected } from "./api-error.ts";
import { type DeliveryCalls, deliveryCalls } from "./deliveries.ts";
import { type JobFilter, type JobList, listJobs } from "./jobs.ts";
import { type LogOptions, logs } from "./logs.ts";
import { type Mutation, resources, type Versioned } from "./resource.ts";
import { type ServerCalls, serverCalls } from "./server.ts";
import { type SessionCalls, sessionCalls } from "./sessions.ts";
import { type CallOptions, type ClientOptions, createTransport, type Request } from "./transport.ts";
import { type WatchOptions, watch } from "./watch.ts";
import { type WorkCalls, workCalls } from "./work.ts";

export type { ActivationView } from "../wire/activation.ts";
export type { AgentSpec, AgentSubmission, AgentTemplateView, AgentView } from "../wire/agent.ts";
export type { CommandView } from "../wire/command.ts";
export type { DeliveryDetail, DeliveryState, DeliveryView } from "../wire/delivery.ts";
export type {
  ArtifactView,
  AttemptPlanView,
  AttemptView,
  ChangeEvent,
  JobPatch,
  JobSpec,
  JobSubmission,
  JobView,
  LogLine,
} from "../wire/job.ts";
export type { RevisionView, SessionSubmission, SessionView } from "../wire/session.ts";
export type {
  DisabledTenant,
  RetiredVersion,
  WorkBatch,
  WorkDetail,
  WorkItem,
  WorkPayload,
  WorkProof,
  WorkReceipt,
  WorkStateName,
  WorkSubmission,
  WorkVersionView,
  WorkView,
} from "../wire/work.ts";
export type { AgentCalls, AgentFilter, AgentList } from "./agents.ts";
export { ApiError, CursorExpiredError } from "./api-error.ts";
export type { RetryPolicy } from "./backoff.ts";
export type { DeliveryCalls, DeliveryFilter, DeliveryList } from "./deliveries.ts";
export type { JobFilter, JobList, JobPage } from "./jobs.ts";
export type { LogOptions } from "./logs.ts";
export type { Conditional, Mutation } from "./resource.ts";
export type { CommandFilter, CommandList, CommandPage, Health, ServerCalls } from "./server.ts";
export type {
  ActivationFilter,
  ActivationList,
  BundleDownload,
  RevisionList,
  SessionCalls,
  SessionFilter,
  SessionList,
} from "./sessions.ts";
export type { CallOptions, ClientOptions } from "./transport.ts";
export type { WatchOptions } from "./watch.ts";
export type { WorkCalls, WorkFilter, WorkList } from "./work.ts";

/** An artifact on its way. The bytes are the promised ones only when their SHA-256 is `artifact.sha256`. */
export interface Download {
  readonly artifact: ArtifactView;
  readonly body: ReadableStream<Uint8Array>;
}

/** The public API of one server. Works in Node and in browsers; every failure is an `ApiError`. */
export interface Client extends AgentCalls, SessionCalls, ServerCalls, DeliveryCalls, WorkCalls {
  submitJob(job: JobSubmission, options?: Mutation): Promise<JobView>;
  getJob(id: string, options?: CallOptions): Promise<JobView>;
  getJobSpec(id: string, options?: CallOptions): Promise<JobSpec>;
  listJobs(filter?: JobFilter): JobList;
  /** `ifMatch` is the ETag of the job that the decision was made on: see `etagOf`. */
  patchJob(id: string, patch: JobPatch, options: Mutation & { readonly ifMatch: string }): Promise<JobView>;
  cancelJob(id: string, options?: Mutation & { readonly reason?: string | undefined }): Promise<JobView>;
  /** An operator's word that a sandbox has stopped whose stop nothing can prove. Its slot comes back. */
  confirmStopped(
    sandbox: { readonly job: string; readonly attempt: number; readonly sandbox: string },
    options: Mutation & { readonly reason: string },
  ): Promise<AttemptView>;
  listAttempts(id: string, options?: CallOptions): Promise<readonly AttemptView[]>;
  getAttempt(id: string, attempt: number, options?: CallOptions): Promise<AttemptView>;
  /** What the attempt was going to do, kept for good. */
  getAttemptPlan(id: string, attempt: number, options?: CallOptions): Promise<AttemptPlanView>;
  logs(id: string, options?: LogOptions): AsyncIterable<LogLine>;
  listArtifacts(id: string, options?: CallOptions): Promise<readonly ArtifactView[]>;
  downloadArtifact(id: string, name: string, options?: CallOptions): Promise<Download>;
  watch(options?: WatchOptions): AsyncIterable<ChangeEvent>;
  /** The ETag that came with a resource which this client gave. */
  etagOf(resource: Versioned): string;
}

export function createClient(options: ClientOptions): Client {
  const transport = createTransport(options);
  const known = resources(transport);
  const job = (request: Request): Promise<JobView> => known.one(request);
  const getJob: Client["getJob"] = (id, { signal } = {}) => job({ path: jobPath(id), signal });
  const listAttempts: Client["listAttempts"] = async (id, { signal } = {}) =>
    items(await transport.json<Listed<AttemptView>>({ path: `${jobPath(id)}/attempts`, signal }));
  const listArtifacts: Client["listArtifacts"] = async (id, { signal } = {}) =>
    items(await transport.json<Listed<ArtifactView>>({ path: `${jobPath(id)}/artifacts`, signal }));

  return {
    ...serverCalls(transport),
    ...agentCalls(transport, known),
    ...sessionCalls(transport, known),
    ...workCalls(transport, known),
    ...deliveryCalls(transport),
    getJob,
    listAttempts,
    listArtifacts,
    submitJob: (body, { idempotencyKey, signal } = {}) =>
      job({ method: "POST", path: "/v1/jobs", body, headers: keyed(idempotencyKey), signal }),
    getJobSpec: async (id, { signal } = {}) =>
      (await transport.json<JobSpec>({ path: `${jobPath(id)}/spec`, signal })).value,
    listJobs: (filter = {}) => listJobs(transport, filter),
    patchJob: (id, body, { ifMatch, idempotencyKey, signal }) =>
      job({
        method: "PATCH",
        path: jobPath(id),
        body,
        headers: { ...keyed(idempotencyKey), "if-match": ifMatch },
        signal,
      }),
    cancelJob: (id, { reason, idempotencyKey, signal } = {}) =>
      job({
        method: "POST",
        path: `${jobPath(id)}:cancel`,
        body: reason === undefined ? {} : { reason },
        headers: keyed(idempotencyKey),
        signal,
      }),
    confirmStopped: async ({ job, attempt, sandbox }, { reason, idempotencyKey, signal }) =>
      (
        await transport.json<AttemptView>({
          method: "POST",
          path: `${jobPath(job)}/attempts/${attempt}/sandboxes/${encodeURIComponent(sandbox)}:confirm-stopped`,
          body: { reason },
          headers: keyed(idempotencyKey),
          signal,
        })
      ).value,
    getAttempt: async (id, attempt, { signal } = {}) =>
      (await transport.json<AttemptView>({ path: `${jobPath(id)}/attempts/${attempt}`, signal })).value,
    getAttemptPlan: async (id, attempt, { signal } = {}) =>
      (await transport.json<AttemptPlanView>({ path: `${jobPath(id)}/attempts/${attempt}/plan`, signal }))
        .value,
    logs: (id, log = {}) =>
      logs(
        transport,
        options.url,
        `${jobPath(id)}/logs`,
        { job: (signal) => getJob(id, { signal }), attempts: (signal) => listAttempts(id, { signal }) },
        log,
      ),
    async downloadArtifact(id, name, { signal } = {}) {
      const artifact = (await listArtifacts(id, { signal })).find((one) => one.name === name);
      if (artifact === undefined) {
        throw new ApiError({ code: "not_found", status: 404, detail: `the job has no artifact ${name}` });
      }
      const path = `${jobPath(id)}/artifacts/${encodeURIComponent(name)}`;
      const headers = { accept: "*/*" };
      const response = await transport.send({ path, headers, signal, stream: true });
      if (response.body === null) throw unexpected("the artifact has no body", response.status);
      return { artifact, body: response.body };
    },
    watch: (watched = {}) => watch(transport, options.url, watched),
    etagOf: (resource) => known.etagOf(resource),
  };
}

/** A list with a frame around it. Attempts and artifacts are few: they have no pages. */
interface Listed<T> {
  readonly items: readonly T[];
}

const items = <T>({ value }: { readonly value: Listed<T> }): readonly T[] => value.items;
const jobPath = (id: string): string => `/v1/jobs/${encodeURIComponent(id)}`;
const keyed = (key: string | undefined): Record<string, string> =>
  key === undefined ? {} : { "idempotency-key": key };
