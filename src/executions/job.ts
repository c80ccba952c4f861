import { type FieldError, HoldfastError } from "../core/errors.ts";
import { labelFaults, mergeLabels, refuseFaults, sameLabels } from "../core/labels.ts";
import { type JobPatch, type JobSpec, type JobState, type JobSubmission, jobLimits } from "../wire/job.ts";

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

/** What neither the schema nor the rules of a submission bound: how many bytes are stored. */
export function checkSizes({ metadata, spec }: JobSubmission): void {
  refuseFaults([...labelFaults(metadata.labels ?? {}, "/metadata/labels"), ...sizeFaults(spec)]);
}

const fault = (pointer: string, message: string): FieldError => ({ pointer, message });

function sizeFaults(spec: JobSpec): FieldError[] {
  const bytes = Buffer.byteLength(JSON.stringify(spec));
  return bytes > jobLimits.specBytesMax
    ? [fault("/spec", `the spec takes ${bytes} bytes of JSON, at most ${jobLimits.specBytesMax} are kept`)]
    : [];
}
