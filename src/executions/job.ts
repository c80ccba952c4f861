import { type FieldError, HoldfastError } from "../core/errors.ts";
import { parseDuration } from "../core/time.ts";
import {
  type JobPatch,
  type JobSpec,
  type JobState,
  type JobSubmission,
  jobLimits,
  type PhaseSpec,
} from "../wire/job.ts";

/**
 * What can happen to a job, and the state that follows; null where it can't happen. `requeue` is the one
 * retry after a failed attempt (E12). The database's trigger `jobs_transitions` holds the same edges.
 */
export const jobTransitions = {
  queued: { start: "running", requeue: null, succeed: null, fail: "failed", cancel: "cancelled" },
  running: { start: null, requeue: "queued", succeed: "succeeded", fail: "failed", cancel: "cancelled" },
  succeeded: { start: null, requeue: null, succeed: null, fail: null, cancel: null },
  failed: { start: null, requeue: null, succeed: null, fail: null, cancel: null },
  cancelled: { start: null, requeue: null, succeed: null, fail: null, cancel: null },
} as const satisfies Record<JobState, Record<JobEvent, JobState | null>>;

export type JobEvent = "start" | "requeue" | "succeed" | "fail" | "cancel";

/** The state after an event, or `conflict`. */
export function nextJobState(state: JobState, event: JobEvent): JobState {
  const next = jobTransitions[state][event];
  if (next === null) throw new HoldfastError("conflict", `the job is ${state}: it can't ${event}`);
  return next;
}

/** What a request to cancel means now (G8). Cancelling twice changes nothing. */
export type Cancellation = "cancel_now" | "request" | "nothing" | "refuse";

export function decideCancellation(job: {
  readonly state: JobState;
  readonly cancelRequested: boolean;
}): Cancellation {
  switch (job.state) {
    case "queued":
      return "cancel_now";
    case "running":
      return job.cancelRequested ? "nothing" : "request";
    case "cancelled":
      return "nothing";
    case "succeeded":
    case "failed":
      return "refuse";
    default:
      return job.state satisfies never;
  }
}

export interface JobIntent {
  readonly labels: Readonly<Record<string, string>>;
  readonly priority: number;
}

/** A merge patch (RFC 7396): a label set to null is removed. Null when it changes nothing. */
export function patchIntent(state: JobState, present: JobIntent, patch: JobPatch): JobIntent | null {
  const labels = mergeLabels(present.labels, patch.labels ?? {});
  const priority = patch.priority ?? present.priority;
  const relabelled = !sameLabels(labels, present.labels);
  if (priority === present.priority && !relabelled) return null;
  if (priority !== present.priority && state !== "queued") {
    throw new HoldfastError("conflict", `the job is ${state}: its priority counts only while it waits`);
  }
  if (relabelled) refuseFaults(labelFaults(labels, "/labels"));
  return { labels, priority };
}

function mergeLabels(
  present: JobIntent["labels"],
  patch: Readonly<Record<string, string | null>>,
): JobIntent["labels"] {
  const merged = new Map<string, string | null>([...Object.entries(present), ...Object.entries(patch)]);
  return Object.fromEntries([...merged].flatMap(([name, value]) => (value === null ? [] : [[name, value]])));
}

function sameLabels(a: JobIntent["labels"], b: JobIntent["labels"]): boolean {
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => a[name] === b[name]);
}

/** Throws `invalid_request` with every fault that the schema alone can't see. */
export function checkSubmission(submission: JobSubmission): void {
  refuseFaults(submissionFaults(submission));
}

function refuseFaults(fields: readonly FieldError[]): void {
  const [first] = fields;
  if (first !== undefined) throw new HoldfastError("invalid_request", first.message, { fields });
}

/** For servers and for files that people write: pointers into the submission, in its own order. */
export function submissionFaults(submission: JobSubmission): FieldError[] {
  const { metadata, spec } = submission;
  return [
    ...labelFaults(metadata.labels ?? {}, "/metadata/labels"),
    ...deadlineFaults(spec),
    ...sourceFaults(spec),
    ...spec.phases.flatMap((phase, index) => phaseFaults(spec, phase, index)),
    ...sizeFaults(spec),
  ];
}

const fault = (pointer: string, message: string): FieldError => ({ pointer, message });

function labelFaults(labels: JobIntent["labels"], pointer: string): FieldError[] {
  const bytes = Object.entries(labels).reduce(
    (sum, [name, value]) => sum + Buffer.byteLength(name) + Buffer.byteLength(value),
    0,
  );
  return [
    ...(Object.keys(labels).length > jobLimits.labelsMax
      ? [fault(pointer, `at most ${jobLimits.labelsMax} labels`)]
      : []),
    ...(bytes > jobLimits.labelsBytesMax
      ? [fault(pointer, `names and values take at most ${jobLimits.labelsBytesMax} bytes together`)]
      : []),
  ];
}

function deadlineFaults({ deadline }: JobSpec): FieldError[] {
  if (deadline === undefined) return [];
  const length = parseDuration(deadline);
  if (length !== undefined && length > 0n && length <= jobLimits.deadlineMicrosecondsMax) return [];
  return [fault("/spec/deadline", "longer than nothing and at most three hours, such as 30m")];
}

/** Sources get their pins from source phases, which come before everything that needs the pins (E9). */
function sourceFaults({ sources, phases }: JobSpec): FieldError[] {
  const needed = Object.keys(sources ?? {}).length > 0;
  const first = phases[0];
  if (needed && first !== undefined && first.kind !== "source") {
    return [fault("/spec/phases/0/kind", "a job with sources begins with a phase of kind source")];
  }
  return [];
}

function phaseFaults(spec: JobSpec, phase: PhaseSpec, index: number): FieldError[] {
  const at = `/spec/phases/${index}`;
  const earlier = spec.phases.slice(0, index);
  const grace = phase.grace === undefined ? 0n : parseDuration(phase.grace);
  const twice = Object.keys(phase.secrets ?? {}).filter((name) => Object.hasOwn(phase.env ?? {}, name));
  return [
    ...(earlier.some(({ name }) => name === phase.name)
      ? [fault(`${at}/name`, `the name ${phase.name} is used twice`)]
      : []),
    ...(phase.kind === "source" && earlier.some(({ kind }) => kind !== "source")
      ? [fault(`${at}/kind`, "source phases come before all others")]
      : []),
    ...(grace === undefined || grace > jobLimits.graceMicrosecondsMax
      ? [fault(`${at}/grace`, "at most five minutes, such as 10s")]
      : []),
    ...twice.map((name) => fault(`${at}/secrets/${name}`, `${name} stands in env too`)),
  ];
}

function sizeFaults(spec: JobSpec): FieldError[] {
  const bytes = Buffer.byteLength(JSON.stringify(spec));
  return bytes > jobLimits.specBytesMax
    ? [fault("/spec", `the spec takes ${bytes} bytes of JSON, at most ${jobLimits.specBytesMax} are kept`)]
    : [];
}
