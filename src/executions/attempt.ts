import type { JobId, TenantId } from "../core/ids.ts";
import type { Instant } from "../core/time.ts";
import type { OutputState } from "../sandboxes/log-archive.ts";
import { isProvenStopped, type Sandbox } from "../sandboxes/sandbox.ts";
import {
  attendSandbox,
  lastCallOf,
  outcomeFailures,
  type SandboxStep,
  type StopReason,
  startTriesMax,
  stopReasonOf,
} from "../sandboxes/step.ts";
import type { PhaseKind } from "../wire/job.ts";
import type { Plan, PlannedPhase } from "./plan.ts";

/** The life of an attempt. Its outcome is written when it finishes and never changes. */
export type AttemptState = "active" | "finished" | "cleaned";
export type AttemptEvent = "finish" | "clean";

/** The whole machine; the database refuses the same moves (`execution_attempts_transitions`). */
export const attemptTransitions: Readonly<
  Record<AttemptState, Readonly<Record<AttemptEvent, AttemptState | null>>>
> = {
  active: { finish: "finished", clean: null },
  finished: { finish: null, clean: "cleaned" },
  cleaned: { finish: null, clean: null },
};

export type Outcome = "succeeded" | "failed" | "cancelled";
export type PhaseState = "pending" | "running" | "succeeded" | "failed" | "skipped";

export interface Phase {
  readonly number: number;
  readonly name: string;
  readonly kind: PhaseKind;
  readonly state: PhaseState;
  /** Why it failed, written when it did and never changed. Null in every other state. */
  readonly failure: Failure | null;
}

/** Characters of a failure's message that are kept; the database refuses more. */
export const failureMessageLengthMax = 1000;

export interface Failure {
  readonly code: string;
  readonly message: string;
}

/** A failure as a row keeps it. */
export function failureOf(row: {
  readonly failure_code: string | null;
  readonly failure_message: string | null;
}): Failure | null {
  const { failure_code: code, failure_message: message } = row;
  return code === null ? null : { code, message: message ?? "" };
}

/** Everything that decides what is done next, read in one snapshot. */
export interface AttemptSnapshot {
  readonly now: Instant;
  /** When the look began, on this machine's monotonic clock: how old `now` is by the time it is acted on. */
  readonly seenAtMs: number;
  readonly tenant: TenantId;
  readonly job: JobId;
  readonly ordinal: number;
  readonly attempt: string;
  readonly state: AttemptState;
  readonly plan: Plan;
  readonly deadline: Instant;
  readonly cancelRequested: boolean;
  readonly phases: readonly Phase[];
  readonly sandboxes: readonly Sandbox[];
  readonly pins: Readonly<Record<string, string>>;
  readonly artifactDeclared: boolean;
  /** Once it has ended: where its output is. */
  readonly output: OutputState;
}

/** One thing to do. Each is idempotent, so a controller that dies after any part of it loses nothing. */
export type Step =
  | SandboxStep
  /** End the running phase, and begin the next one when it went well. */
  | { readonly do: "advance"; readonly ended: EndedPhase | null; readonly next: NextPhase | null }
  | { readonly do: "finish"; readonly outcome: Outcome; readonly failure: Failure | null }
  /** Put all of its output into one blob, and record that. */
  | { readonly do: "archive" }
  /** Delete the chunks of output that are in the archive. */
  | { readonly do: "trim" }
  | { readonly do: "clean" }
  | { readonly do: "nothing" };

export interface EndedPhase {
  readonly phase: Phase;
  readonly state: "succeeded" | "failed";
  readonly failure: Failure | null;
}

export interface NextPhase {
  readonly phase: Phase;
  readonly planned: PlannedPhase;
  /** The how-manieth sandbox of this phase. More than one only when the ones before never started. */
  readonly ordinal: number;
}

/** After the end. The archive is recorded before a chunk goes, so output is always in one of the two (E19). */
const cleaning: Readonly<Record<OutputState, Step>> = {
  stored: { do: "archive" },
  archived: { do: "trim" },
  moved: { do: "clean" },
};

/**
 * What to do next. Total and pure: the same snapshot always gives the same step. What must not run is stopped
 * first; nothing starts while anything is not proven stopped (E8); an attempt ends only after its output is
 * stored (E10).
 */
export function decide(view: AttemptSnapshot): Step {
  if (view.state === "cleaned") return { do: "nothing" };
  if (view.state === "finished") return cleaning[view.output];
  const alive = view.sandboxes.find((sandbox) => !isProvenStopped(sandbox.state));
  const attended =
    alive === undefined ? null : attendSandbox(alive, stopReason(view, lastCall(view, alive.step)));
  if (attended !== null) return attended;
  const undrained = view.sandboxes.find((sandbox) => sandbox.uid !== null && !sandbox.log.settled);
  const running = view.phases.find((phase) => phase.state === "running");
  if (undrained !== undefined) return { do: "drain", sandbox: undrained };
  if (running !== undefined) return settle(view, running, stopReason(view, lastCall(view, running.name)));
  const failed = view.phases.find((phase) => phase.state === "failed");
  const stop = stopReason(view, view.deadline);
  if (stop !== null) return finish(stop, failed?.failure ?? null);
  if (failed !== undefined) return { do: "finish", outcome: "failed", failure: failed.failure };
  const next = view.phases.find((phase) => phase.state === "pending");
  if (next === undefined) return { do: "finish", outcome: "succeeded", failure: null };
  // A phase that would have to stop before it began is not begun.
  const tooLate = stopReason(view, lastCall(view, next.name));
  return tooLate === null ? { do: "advance", ended: null, next: begin(view, next) } : finish(tooLate, null);
}

function stopReason(view: AttemptSnapshot, end: Instant): StopReason | null {
  return stopReasonOf(view.now, view.cancelRequested, end);
}

/**
 * When a sandbox is asked to stop, so that even one that doesn't listen has ended at the attempt's deadline: its
 * grace before that (E4).
 */
export function lastCall(view: Pick<AttemptSnapshot, "plan" | "deadline">, phase: string): Instant {
  const grace = view.plan.phases.find(({ name }) => name === phase)?.grace_us ?? "0";
  return lastCallOf(view.deadline, BigInt(grace));
}

function settle(view: AttemptSnapshot, phase: Phase, stop: StopReason | null): Step {
  const own = view.sandboxes.filter((sandbox) => sandbox.step === phase.name);
  const last = own.at(-1);
  const started = last !== undefined && last.releasedAt !== null;
  if (stop === null && !started && own.length < startTriesMax) {
    return { do: "advance", ended: null, next: begin(view, phase) };
  }
  const failure = phaseFailure(view, phase, last, stop);
  const ended: EndedPhase = { phase, state: failure === null ? "succeeded" : "failed", failure };
  const goesOn = failure === null && stop === null;
  const next = goesOn ? view.phases.find((other) => other.number > phase.number) : undefined;
  return { do: "advance", ended, next: next === undefined ? null : begin(view, next) };
}

function begin(view: AttemptSnapshot, phase: Phase): NextPhase {
  const planned = view.plan.phases.find((candidate) => candidate.name === phase.name);
  if (planned === undefined) throw new Error(`the plan has no phase ${phase.name}`);
  const ordinal = view.sandboxes.filter((sandbox) => sandbox.step === phase.name).length + 1;
  return { phase, planned, ordinal };
}

/** `failure`: of a phase that has failed. It is told when it tells more of the same. */
function finish(stop: StopReason, failure: Failure | null): Step {
  if (stop === "cancelled") return { do: "finish", outcome: "cancelled", failure: null };
  const tells = failure?.code === deadlineFailure.code;
  return { do: "finish", outcome: "failed", failure: tells ? failure : deadlineFailure };
}

export const deadlineFailure: Failure = {
  code: "deadline_exceeded",
  message: "The attempt did not end before its deadline and was stopped.",
};

/** With what its sandbox says: one that never had a node, or was never created, says why. */
function overdueFailure(phase: Phase, sandbox: Sandbox | undefined): Failure {
  const { code, message } = deadlineFailure;
  const said = sandbox?.message ?? null;
  const words = said === null ? message : `${message} Phase ${phase.name}: ${said}`;
  return { code, message: words.slice(0, failureMessageLengthMax) };
}

/** Why a phase failed; null when it went well. */
function phaseFailure(
  view: AttemptSnapshot,
  phase: Phase,
  sandbox: Sandbox | undefined,
  stop: StopReason | null,
): Failure | null {
  const started = sandbox !== undefined && sandbox.releasedAt !== null;
  if (sandbox?.stopReason === "cancelled" || (stop === "cancelled" && !started)) {
    return { code: "cancelled", message: `Phase ${phase.name} was stopped because the job was cancelled.` };
  }
  const overdue = sandbox?.stopReason === "deadline" || sandbox?.outcome === "deadline";
  if (overdue || (stop === "deadline" && !started)) return overdueFailure(phase, sandbox);
  if (!started) {
    const reason = sandbox?.message ?? "no sandbox of it came up";
    return { code: "start_failed", message: `Phase ${phase.name} could not be started: ${reason}` };
  }
  if (sandbox.outcome !== "exited" || sandbox.exitCode !== 0) {
    return {
      code: phaseFailures[sandbox.outcome ?? "unknown"] ?? "phase_failed",
      message: `Phase ${phase.name}: ${sandbox.message ?? "failed"}`,
    };
  }
  if (phase.kind === "source") {
    const isLastSource = !view.phases.some((other) => other.kind === "source" && other.number > phase.number);
    const missing = Object.keys(view.plan.sources).filter((source) => view.pins[source] === undefined);
    if (isLastSource && missing.length > 0) {
      return {
        code: "pins_missing",
        message: `Phase ${phase.name} ended without a commit pin for: ${missing.join(", ")}.`,
      };
    }
  }
  if (phase.kind === "publish" && !view.artifactDeclared) {
    return { code: "artifact_missing", message: `Phase ${phase.name} ended without declaring an artifact.` };
  }
  return null;
}

const phaseFailures: Readonly<Record<string, string>> = { ...outcomeFailures, signaled: "phase_failed" };
