import type { ArtifactView, AttemptView, Blocked, JobView, PhaseView } from "../wire/job.ts";
import type { JobPicture } from "./follow.ts";
import type { Colors } from "./terminal.ts";
import { between, elapsed } from "./time-text.ts";
import { visible } from "./visible.ts";

type State = JobView["state"] | PhaseView["state"];

export function stateColor(state: string, colors: Colors): (text: string) => string {
  switch (state as State) {
    case "succeeded":
      return colors.green;
    case "failed":
      return colors.red;
    case "cancelled":
    case "skipped":
      return colors.yellow;
    case "running":
      return colors.cyan;
    case "queued":
    case "pending":
      return colors.dim;
    default:
      return (text) => text;
  }
}

type PhaseWord = PhaseView["state"] | "cancelled";

/** A phase that a cancellation stopped didn't go wrong. */
export function phaseWord({ state, failure }: PhaseView): PhaseWord {
  return failure?.code === "cancelled" ? "cancelled" : state;
}

export function phaseMark(word: PhaseWord): string {
  switch (word) {
    case "pending":
      return "·";
    case "running":
      return "▸";
    case "succeeded":
      return "✔";
    case "failed":
      return "✖";
    case "cancelled":
      return "■";
    case "skipped":
      return "-";
  }
}

/** How long a phase took, or has taken so far. */
export function phaseTime(phase: PhaseView, now: number): string {
  if (phase.started_at === null) return "";
  if (phase.finished_at !== null) return between(phase.started_at, phase.finished_at);
  return elapsed(now - Date.parse(phase.started_at));
}

export function progressWords({ progress }: PhaseView): string {
  if (progress === null) return "";
  const percent = progress.percent === null ? "" : `${progress.percent}% `;
  return `${percent}${visible(progress.message)}`;
}

/** The job's state as a sentence, with the reason when it went wrong. */
export function stateWords(job: JobView): string {
  const reason = job.cancel_reason === null ? "" : `: ${visible(job.cancel_reason)}`;
  switch (job.state) {
    case "failed":
      return job.failure === null ? "failed" : `failed: ${failureWords(job.failure)}`;
    case "cancelled":
      return `was cancelled${reason}`;
    case "queued":
    case "running":
      return job.cancel_requested_at === null
        ? `${job.state}${blockedWords(job)}`
        : `is being cancelled${reason}`;
    case "succeeded":
      return "succeeded";
  }
}

/** What keeps it from going on, after its state. */
export function blockedWords({ blocked }: { readonly blocked?: Blocked | undefined }): string {
  return blocked === undefined ? "" : `. ${visible(blocked.message)}`;
}

export function failureWords(failure: { readonly code: string; readonly message: string }): string {
  return `${visible(failure.message)} (${visible(failure.code)})`;
}

export function artifactWords({ name, bytes, sha256 }: ArtifactView): string {
  return `${visible(name)} ${bytes} bytes sha256:${sha256}`;
}

/** The last line of a job that was followed, and one for each of its artifacts. */
export function resultLines({ job, attempts }: JobPicture, artifacts: readonly ArtifactView[]): string[] {
  const began = attempts[0]?.started_at;
  const time =
    began === undefined || job.finished_at === null ? "" : ` after ${between(began, job.finished_at)}`;
  const words = job.state === "succeeded" ? `succeeded${time}` : stateWords(job);
  return [
    `${visible(job.name)} ${words}`,
    ...artifacts.map((artifact) => `artifact ${artifactWords(artifact)}`),
  ];
}

export function currentAttempt(attempts: readonly AttemptView[]): AttemptView | undefined {
  return attempts.reduce<AttemptView | undefined>(
    (latest, one) => (latest === undefined || one.attempt > latest.attempt ? one : latest),
    undefined,
  );
}
