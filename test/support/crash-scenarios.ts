import type { JobId, TenantId } from "../../src/core/ids.ts";
import type { JobSubmission } from "../../src/wire/job.ts";
import type { Arena } from "./arena.ts";
import { markedJob, publishingPhases, publishingSpec } from "./marked-job.ts";
import { until } from "./until.ts";

export interface Scenario {
  readonly name: string;
  readonly job: (arena: Arena) => JobSubmission;
  /** What happens to the job while the first controller has it. */
  readonly meanwhile?: (arena: Arena, job: JobId, tenant: TenantId) => Promise<void>;
  readonly expected: { readonly state: string; readonly attempts: number };
  readonly moments: readonly string[];
  /** Moments that nothing tells the owner of, or at which nothing else is started: one kill for each. */
  readonly alone?: readonly string[];
  /**
   * The first is killed here, then that which happens meanwhile does, and the one that takes over is killed at
   * the moment in question.
   */
  readonly before?: string;
}

const around = (...transitions: string[]) =>
  transitions.flatMap((name) => [`commit ${name}`, `committed ${name}`]);
const outside = (...calls: string[]) => calls.flatMap((name) => [`call ${name}`, `returned ${name}`]);

const started = (arena: Arena, job: JobId) =>
  until("its phase has started", async () => (await arena.marks(job)).length > 0, 60_000);

/** What happens in any build, and what else can happen. */
export const plainBuild: readonly Scenario[] = [
  {
    name: "a build of one phase",
    // Long enough for a look that finds it running, on a busy machine too.
    job: (arena) => markedJob(arena, "plain", [{ run: "echo done; sleep 2" }]),
    expected: { state: "succeeded", attempts: 1 },
    moments: [
      ...around("advancePhase", "sandbox.held", "sandbox.released", "appendProgress"),
      ...around("sandbox.stopped", "recordLogEnd", "advancePhase#2", "finishExecution", "sandbox.removed"),
      ...around("recordLogArchive", "deleteLogChunks", "markExecutionCleaned"),
      ...outside("runtime.prepare", "runtime.release", "runtime.observe", "runtime.observe#2"),
      ...outside("runtime.changed", "runtime.logs", "runtime.remove", "blobs.put"),
    ],
    alone: [...around("claim admissions", "startExecution"), ...outside("runtime.secretValues")],
  },
];

export const otherBuilds: readonly Scenario[] = [
  {
    name: "a build that publishes",
    job: (arena) => markedJob(arena, "publishing", publishingPhases, publishingSpec),
    expected: { state: "succeeded", attempts: 1 },
    moments: [
      ...around("recordSourcePins", "promiseObject", "completeObject", "declareArtifact"),
      ...around("advancePhase#2", "finishExecution", "markObjectRemoved"),
      ...outside("blobs.grantUpload", "blobs.verify", "blobs.remove"),
    ],
  },
  {
    name: "a build that is cancelled while it runs",
    job: (arena) => markedJob(arena, "cancelled", [{ run: "sleep 60" }]),
    async meanwhile(arena, job, tenant) {
      await started(arena, job);
      await arena.cancel(job, tenant);
    },
    expected: { state: "cancelled", attempts: 1 },
    moments: [
      ...around("sandbox.stopping", "sandbox.stopped", "finishExecution"),
      ...outside("runtime.stop"),
    ],
  },
  {
    name: "a build whose first attempt fails",
    job: (arena) => markedJob(arena, "retried", [{ run: '[ "$HOLDFAST_ATTEMPT" = 2 ]' }], { attempts: 2 }),
    expected: { state: "succeeded", attempts: 2 },
    moments: around("finishExecution"),
    alone: around("startExecution#2"),
  },
  {
    name: "a takeover",
    before: "returned runtime.release",
    job: (arena) => markedJob(arena, "taken-over", [{ run: "sleep 1.5" }]),
    expected: { state: "succeeded", attempts: 1 },
    moments: [],
    alone: [...around("claim execution leases"), ...outside("runtime.fence")],
  },
];
