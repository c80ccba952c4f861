import type { TenantId } from "../core/ids.ts";
import { type Instant, instant, type Microseconds } from "../core/time.ts";
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
import type { RequiredAction } from "../wire/agent-protocol.ts";
import { isUnfinished } from "./agent-protocol.ts";
import type { ObservedState, SessionIntent } from "./session.ts";

/** The life of an activation. Its outcome is written when it ends, and never changes. */
export type ActivationState =
  | "queued"
  | "running"
  | "committing"
  | "waiting"
  | "committed"
  | "failed"
  | "cancelled";
export type ActivationEvent =
  | "start"
  | "propose"
  | "commit"
  | "wait"
  | "resume"
  | "retry"
  | "fail"
  | "cancel";

type Edges = Readonly<Record<ActivationEvent, ActivationState | null>>;
const none: Edges = {
  start: null,
  propose: null,
  commit: null,
  wait: null,
  resume: null,
  retry: null,
  fail: null,
  cancel: null,
};

/** The whole machine; the database refuses the same moves (`activations_transitions`). */
export const activationTransitions: Readonly<Record<ActivationState, Edges>> = {
  queued: { ...none, start: "running", cancel: "cancelled" },
  running: { ...none, propose: "committing", retry: "queued", fail: "failed", cancel: "cancelled" },
  // Nothing of it runs any more, and what it proposes is known.
  committing: {
    ...none,
    commit: "committed",
    wait: "waiting",
    retry: "queued",
    fail: "failed",
    cancel: "cancelled",
  },
  // For somebody to do what it needs. Those after it wait too.
  waiting: { ...none, resume: "queued", cancel: "cancelled" },
  committed: none,
  failed: none,
  cancelled: none,
};

export function hasEnded(state: ActivationState): boolean {
  return state === "committed" || state === "failed" || state === "cancelled";
}

/** What a request to cancel means now (G8). Cancelling twice changes nothing. */
export type Cancellation = "cancel_now" | "request" | "nothing" | "refuse";

export function decideCancellation(activation: {
  readonly state: ActivationState;
  readonly cancelRequested: boolean;
}): Cancellation {
  switch (activation.state) {
    case "queued":
    case "waiting":
      return "cancel_now";
    case "running":
    case "committing":
      return activation.cancelRequested ? "nothing" : "request";
    case "cancelled":
      return "nothing";
    case "committed":
    case "failed":
      return "refuse";
    default:
      return activation.state satisfies never;
  }
}

export interface Failure {
  readonly code: string;
  readonly message: string;
}

/** Everything that decides what is done next with a session, read in one snapshot. */
export interface SessionSnapshot {
  readonly now: Instant;
  /** When the look began, on this machine's monotonic clock: how old `now` is by the time it is acted on. */
  readonly seenAtMs: number;
  readonly tenant: TenantId;
  readonly session: string;
  readonly desired: SessionIntent;
  readonly generation: bigint;
  readonly head: bigint;
  /** The first that has not ended; those after it wait. */
  readonly activation: Activation | null;
}

export interface Activation {
  readonly uid: string;
  readonly id: string;
  readonly state: ActivationState;
  readonly cancelRequested: boolean;
  readonly retryAt: Instant | null;
  /** Runs so far, and how many of them failed in a way that another may mend. */
  readonly tries: number;
  readonly failures: number;
  readonly triesMax: number;
  readonly grace: Microseconds;
  /** Of the run's template: where its reply goes. */
  readonly destinations: readonly string[];
  readonly sandboxes: readonly Sandbox[];
  /** Of the present run's output: the last chunk that was read, and whether all of it was. */
  readonly output: { readonly read: bigint; readonly done: boolean; readonly fault: Failure | null };
  /** What the agent said at the end of the present run. */
  readonly proposal: Proposal | null;
}

export interface Proposal {
  /** Null: the bundle stays as it is. */
  readonly candidate: { readonly sha256: string; readonly verified: boolean } | null;
  readonly requiredAction: RequiredAction | null;
}

export type SessionStep =
  | SandboxStep
  /** Begin a run from the head, when the tenant has room: plan its sandbox. */
  | { readonly do: "start"; readonly activation: Activation }
  /** Another sandbox for a run whose sandboxes never started. */
  | { readonly do: "plan"; readonly activation: Activation; readonly ordinal: number }
  /** Understand what the agent has said since the last look. `end`: nothing more comes. */
  | {
      readonly do: "read";
      readonly activation: Activation;
      readonly sandbox: Sandbox;
      readonly end: boolean;
    }
  | { readonly do: "propose"; readonly activation: Activation }
  /** Look whether the store has the candidate with its length and digest. */
  | { readonly do: "verify"; readonly activation: Activation }
  | { readonly do: "commit"; readonly activation: Activation }
  /** Somebody has to do something first. */
  | { readonly do: "wait"; readonly activation: Activation }
  | { readonly do: "retry"; readonly activation: Activation; readonly failure: Failure; readonly at: Instant }
  | { readonly do: "fail"; readonly activation: Activation; readonly failure: Failure }
  | { readonly do: "cancel"; readonly activation: Activation }
  /** Nothing to do now: record what is observed, and hold nothing until `until`, or until something changes. */
  | { readonly do: "rest"; readonly observed: ObservedState; readonly until: Instant | null };

/**
 * What to do next. Total and pure: the same snapshot always gives the same step. One activation at a time, in the
 * order of admission; a run begins only when nothing of the one before can still run.
 */
export function decide(view: SessionSnapshot): SessionStep {
  const { activation } = view;
  if (activation === null) return rest(view);
  switch (activation.state) {
    case "queued":
      return begin(view, activation);
    case "running":
      return run(view, activation);
    case "committing":
      return settle(activation);
    case "waiting":
      return rest(view, "waiting");
    case "committed":
    case "failed":
    case "cancelled":
      return rest(view);
    default:
      return activation.state satisfies never;
  }
}

function rest(
  view: SessionSnapshot,
  otherwise: ObservedState = "idle",
  until: Instant | null = null,
): SessionStep {
  const intended: Readonly<Record<SessionIntent, ObservedState>> = {
    active: otherwise,
    suspended: "suspended",
    closed: view.activation === null ? "closed" : otherwise,
    deleted: view.activation === null ? "deleted" : otherwise,
  };
  return { do: "rest", observed: intended[view.desired], until };
}

function begin(view: SessionSnapshot, activation: Activation): SessionStep {
  if (activation.cancelRequested) return { do: "cancel", activation };
  if (view.desired === "suspended") return rest(view);
  const { retryAt } = activation;
  if (retryAt !== null && retryAt > view.now) return rest(view, "running", retryAt);
  return { do: "start", activation };
}

/** The step of a run, which its sandboxes have: at most one sandbox of a step ever starts. */
export function runStep(tries: number): string {
  return `run-${tries}`;
}

function run(view: SessionSnapshot, activation: Activation): SessionStep {
  const { sandboxes, output } = activation;
  const alive = sandboxes.find((sandbox) => !isProvenStopped(sandbox.state));
  if (alive !== undefined) {
    const stop = stopReason(view, activation, alive);
    // What it has said goes out while it runs.
    if (stop === null && alive.state === "released" && !output.done && alive.log.seq > output.read) {
      return { do: "read", activation, sandbox: alive, end: false };
    }
    // After a fault nothing more is read, so nothing good can come of it: it is not left to run on.
    const step = attendSandbox(alive, stop ?? (output.fault === null ? null : "fault"));
    if (step !== null) return step;
  }
  const undrained = sandboxes.find((sandbox) => sandbox.uid !== null && !sandbox.log.settled);
  if (undrained !== undefined) return { do: "drain", sandbox: undrained };
  if (activation.cancelRequested) return { do: "cancel", activation };
  const own = sandboxes.filter((sandbox) => sandbox.step === runStep(activation.tries));
  const last = own.at(-1);
  if (last === undefined) return { do: "plan", activation, ordinal: 1 };
  const overdue = stopReason(view, activation, last) === "deadline";
  if (last.releasedAt === null && own.length < startTriesMax && !overdue) {
    return { do: "plan", activation, ordinal: own.length + 1 };
  }
  if (last.releasedAt !== null && !output.done) return { do: "read", activation, sandbox: last, end: true };
  const fault = runFault(activation, last, overdue);
  return fault === null ? { do: "propose", activation } : failed(view, activation, fault);
}

function stopReason(view: SessionSnapshot, activation: Activation, sandbox: Sandbox): StopReason | null {
  const end = lastCallOf(sandbox.deadline, activation.grace);
  return stopReasonOf(view.now, activation.cancelRequested, end);
}

function settle(activation: Activation): SessionStep {
  const { proposal } = activation;
  if (activation.cancelRequested) return { do: "cancel", activation };
  if (proposal === null)
    throw new Error(`activation ${activation.id} is committing and has proposed nothing`);
  if (proposal.requiredAction !== null) return { do: "wait", activation };
  const { candidate } = proposal;
  return { do: candidate === null || candidate.verified ? "commit" : "verify", activation };
}

/** A failure of a run, and whether another run from the same head may mend it. */
export interface RunFault extends Failure {
  readonly retryable: boolean;
}

export const deadlineFailure: RunFault = {
  code: "deadline_exceeded",
  message: "The run did not end before its timeout and was stopped.",
  retryable: false,
};

/** Why a run that has stopped failed; null when it went well and has proposed something. */
function runFault(activation: Activation, sandbox: Sandbox, overdue: boolean): RunFault | null {
  const message = sandbox.message ?? "failed";
  const { fault } = activation.output;
  // It is stopped for what it said, or ended by itself after that, in whatever way.
  if (fault !== null && (sandbox.stopReason === "fault" || !isUnfinished(fault.code))) {
    return { ...fault, retryable: isUnfinished(fault.code) };
  }
  if (sandbox.stopReason === "deadline" || sandbox.outcome === "deadline") return deadlineFailure;
  if (sandbox.releasedAt === null) {
    if (overdue) return deadlineFailure;
    return { code: "start_failed", message: `The sandbox could not be started: ${message}`, retryable: true };
  }
  if (sandbox.outcome !== "exited") {
    const code = outcomeFailures[sandbox.outcome ?? "unknown"] ?? "sandbox_lost";
    return {
      code,
      message: `The agent did not end by itself: ${message}`,
      retryable: code !== "out_of_memory",
    };
  }
  if (sandbox.exitCode !== 0) {
    return { code: "agent_failed", message: `The agent failed: ${message}`, retryable: true };
  }
  if (sandbox.log.truncated) {
    return {
      code: "output_too_large",
      message: "The agent wrote more than is kept of its output, so its outcome is not known.",
      retryable: false,
    };
  }
  if (fault !== null) return { ...fault, retryable: isUnfinished(fault.code) };
  if (activation.proposal === null) {
    return { code: "no_outcome", message: "The agent ended without an outcome.", retryable: true };
  }
  return null;
}

/** Between two runs: doubles from a second up to a minute. */
const retryFirstUs = 1_000_000n;
const retryMaxUs = 60_000_000n;

/** Another run from the unchanged head, or the end; never after a commit, which leaves this state. */
export function failed(view: SessionSnapshot, activation: Activation, fault: RunFault): SessionStep {
  const { retryable, ...failure } = fault;
  if (!retryable || activation.failures + 1 >= activation.triesMax)
    return { do: "fail", activation, failure };
  const doubled = retryFirstUs * 2n ** BigInt(activation.failures);
  const pause = doubled < retryMaxUs ? doubled : retryMaxUs;
  return { do: "retry", activation, failure, at: instant(view.now + pause) };
}

/** The store has no such bytes: the agent named what it never sent, or they were lost on the way. */
export const candidateMissing: RunFault = {
  code: "candidate_missing",
  message: "The store does not have the candidate with its promised length and digest.",
  retryable: true,
};
