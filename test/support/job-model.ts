import type { AttemptState, Outcome, PhaseState } from "../../src/executions/attempt.ts";
import type { SandboxState } from "../../src/sandboxes/sandbox.ts";
import type { JobState } from "../../src/wire/job.ts";

/** Two controllers: one that knows the job from the beginning, and one that takes over. */
export type Controller = "one" | "two";

export interface LeaseModel {
  readonly holder: Controller | null;
  readonly expired: boolean;
}

export interface SandboxModel {
  readonly phase: number;
  readonly state: SandboxState;
  readonly uid: boolean;
  readonly released: boolean;
  /** It exited with 0. */
  readonly good: boolean;
  readonly chunks: number;
  readonly settled: boolean;
}

export interface AttemptModel {
  readonly state: AttemptState;
  readonly outcome: Outcome | null;
  readonly overdue: boolean;
  readonly lease: LeaseModel | null;
  readonly slot: boolean;
  readonly phases: readonly PhaseState[];
  readonly sandboxes: readonly SandboxModel[];
  readonly pins: boolean;
  readonly declared: boolean;
}

/** All that can be told of one job whose plan is a source phase and a publish phase, with two attempts. */
export interface JobModel {
  readonly state: JobState;
  readonly priority: number;
  readonly cancelRequested: boolean;
  readonly admission: LeaseModel | null;
  readonly attempts: readonly AttemptModel[];
  readonly artifact: boolean;
}

export const operations = [
  "start",
  "admit",
  "lease",
  "renew",
  "return",
  "hold",
  "release",
  "stop",
  "prove",
  "append",
  "drain",
  "pins",
  "advance",
  "cancel",
  "finish succeeded",
  "finish failed",
  "remove",
  "clean",
  "patch",
  "deadline",
] as const;
export type Operation = (typeof operations)[number];

/** What an operation gives back: `ok`, what it found, or the code of its refusal. */
export interface Result {
  readonly result: string;
  readonly job: JobModel;
}

/** The phases of the plan, and what they need. */
export const modelPhases = [
  { name: "fetch", kind: "source" },
  { name: "publish", kind: "publish" },
] as const;

export const freshJob: JobModel = {
  state: "queued",
  priority: 2,
  cancelRequested: false,
  admission: { holder: null, expired: false },
  attempts: [],
  artifact: false,
};

const freshAttempt: AttemptModel = {
  state: "active",
  outcome: null,
  overdue: false,
  lease: { holder: "one", expired: false },
  slot: true,
  phases: modelPhases.map(() => "pending"),
  sandboxes: [],
  pins: false,
  declared: false,
};

const alive = ({ state }: SandboxModel) => state !== "stopped" && state !== "removed";
const free = (lease: LeaseModel | null) => lease !== null && (lease.holder === null || lease.expired);
const heldByOne = (lease: LeaseModel | null) => lease !== null && lease.holder === "one" && !lease.expired;

/**
 * What `one` (or `two`, who takes leases) does, decided on what it knew: the job as it was at `known`. Null when
 * nobody would do that then, because there is nothing to do it to.
 */
export function apply(operation: Operation, known: JobModel, job: JobModel): Result | null {
  const last = job.attempts[known.attempts.length - 1];
  switch (operation) {
    case "start":
      return start(known, job);
    case "admit":
      return admit(job);
    case "lease":
      return takeOver(job);
    case "cancel":
      return cancel(job);
    case "patch":
      return patch(job);
    case "deadline":
      return {
        result: "ok",
        job: {
          ...job,
          attempts: job.attempts.map((attempt) => ({ ...attempt, overdue: attempt.state === "active" })),
        },
      };
    case "pins":
      return last === undefined ? null : pins(known, job, last);
    case "renew":
      if (last === undefined) return null;
      return { result: heldByOne(last.lease) ? "renewed" : "lost", job };
    case "return":
    case "hold":
    case "release":
    case "stop":
    case "prove":
    case "append":
    case "drain":
    case "advance":
    case "finish succeeded":
    case "finish failed":
    case "remove":
    case "clean":
      return last === undefined ? null : underLease(operation, known, job, last);
    default:
      return operation satisfies never;
  }
}

const refused = (job: JobModel, result: string): Result => ({ result, job });

/** The attempt that `known` saw last, changed. */
function withAttempt(job: JobModel, known: JobModel, change: Partial<AttemptModel>): JobModel {
  const at = known.attempts.length - 1;
  const attempts = job.attempts.map((attempt, index) => (index === at ? { ...attempt, ...change } : attempt));
  return { ...job, attempts };
}

function start(known: JobModel, job: JobModel): Result {
  const ordinal = nextOrdinal(known);
  if (job.attempts.length >= ordinal) return refused(job, "existing");
  if (!heldByOne(job.admission)) return refused(job, "fenced");
  return {
    result: "started",
    job: { ...job, state: "running", admission: null, attempts: [...job.attempts, freshAttempt] },
  };
}

/** Whoever believes that the job waits starts the next attempt; anybody else repeats the last start. */
export function nextOrdinal({ state, attempts }: JobModel): number {
  return state === "queued" ? attempts.length + 1 : Math.max(1, attempts.length);
}

function admit(job: JobModel): Result {
  // The pool has one slot.
  if (!free(job.admission) || job.attempts.some(({ slot }) => slot)) return refused(job, "none");
  return { result: "taken", job: { ...job, admission: { holder: "two", expired: false } } };
}

function takeOver(job: JobModel): Result {
  const at = job.attempts.findIndex(({ lease }) => free(lease));
  if (at === -1) return refused(job, "none");
  const lease = { holder: "two", expired: false } as const;
  const attempts = job.attempts.map((attempt, index) => (index === at ? { ...attempt, lease } : attempt));
  return { result: "taken", job: { ...job, attempts } };
}

function cancel(job: JobModel): Result {
  switch (job.state) {
    case "queued":
      return { result: "ok", job: { ...job, state: "cancelled", cancelRequested: true, admission: null } };
    case "running":
      return { result: "ok", job: { ...job, cancelRequested: true } };
    case "cancelled":
      return refused(job, "ok");
    case "succeeded":
    case "failed":
      return refused(job, "conflict");
    default:
      return job.state satisfies never;
  }
}

function patch(job: JobModel): Result {
  if (job.priority === 1) return refused(job, "ok");
  return job.state === "queued" ? { result: "ok", job: { ...job, priority: 1 } } : refused(job, "conflict");
}

function pins(known: JobModel, job: JobModel, attempt: AttemptModel): Result | null {
  const at = knownSandbox(known);
  const sandbox = attempt.sandboxes[at];
  if (sandbox === undefined) return null;
  const speaks = attempt.state === "active" && sandbox.state === "released" && !attempt.overdue;
  if (!speaks || attempt.phases[sandbox.phase] !== "running") return refused(job, "sandbox_fenced");
  if (modelPhases[sandbox.phase]?.kind !== "source") return refused(job, "conflict");
  return { result: "ok", job: withAttempt(job, known, { pins: true }) };
}

/** The last sandbox that it saw. */
export function knownSandbox(known: JobModel): number {
  return (known.attempts.at(-1)?.sandboxes.length ?? 0) - 1;
}

type Fenced =
  | "return"
  | "hold"
  | "release"
  | "stop"
  | "prove"
  | "append"
  | "drain"
  | "advance"
  | "finish succeeded"
  | "finish failed"
  | "remove"
  | "clean";

function underLease(operation: Fenced, known: JobModel, job: JobModel, attempt: AttemptModel): Result | null {
  const ofSandbox = ["hold", "release", "stop", "prove", "append", "drain", "remove"].includes(operation);
  const at = knownSandbox(known);
  if (ofSandbox && at < 0) return null;
  if (operation === "advance" && knownAdvance(known) === null) return null;
  if (!heldByOne(attempt.lease)) return refused(job, "fenced");
  switch (operation) {
    case "return":
      return {
        result: "ok",
        job: withAttempt(job, known, { lease: { holder: null, expired: false } }),
      };
    case "advance":
      return advance(known, job, attempt);
    case "finish succeeded":
      return finish("succeeded", known, job, attempt);
    case "finish failed":
      return finish("failed", known, job, attempt);
    case "clean":
      return clean(known, job, attempt);
    case "hold":
    case "release":
    case "stop":
    case "prove":
    case "append":
    case "drain":
    case "remove": {
      const sandbox = attempt.sandboxes[at];
      if (sandbox === undefined) return null;
      const moved = moveSandbox(operation, known, attempt, sandbox);
      const sandboxes = attempt.sandboxes.map((other, index) => (index === at ? moved.sandbox : other));
      return { result: moved.result, job: withAttempt(job, known, { sandboxes }) };
    }
    default:
      return operation satisfies never;
  }
}

type OfSandbox = "hold" | "release" | "stop" | "prove" | "append" | "drain" | "remove";

function moveSandbox(
  operation: OfSandbox,
  known: JobModel,
  attempt: AttemptModel,
  sandbox: SandboxModel,
): { readonly result: string; readonly sandbox: SandboxModel } {
  const to = (change: Partial<SandboxModel>) => ({ result: "ok", sandbox: { ...sandbox, ...change } });
  const stay = (result: string) => ({ result, sandbox });
  switch (operation) {
    case "drain":
      return to({ settled: true });
    case "append": {
      const seen = known.attempts.at(-1)?.sandboxes.at(-1)?.chunks;
      if (sandbox.settled || sandbox.chunks !== seen) return stay("nothing");
      return to({ chunks: sandbox.chunks + 1 });
    }
    case "remove":
      return sandbox.state === "stopped" ? to({ state: "removed" }) : stay("ok");
    case "hold":
    case "release":
    case "stop":
    case "prove":
      break;
    default:
      return operation satisfies never;
  }
  if (attempt.state !== "active") return stay("conflict");
  switch (operation) {
    case "hold":
      if (sandbox.state === "planned") return to({ state: "held", uid: true });
      return stay(sandbox.uid ? "ok" : "uid_conflict");
    case "release":
      return sandbox.state === "held" ? to({ state: "released", released: true }) : stay("ok");
    case "stop":
      return ["held", "released"].includes(sandbox.state) ? to({ state: "stopping" }) : stay("ok");
    case "prove":
      return alive(sandbox) ? to({ state: "stopped", good: true }) : stay("ok");
    default:
      return operation satisfies never;
  }
}

/** Which phase it would end and which it would begin. Null: there is none of either. */
export function knownAdvance(
  known: JobModel,
): { readonly ended: number | null; readonly next: number | null } | null {
  const phases = known.attempts.at(-1)?.phases ?? [];
  const ended = phases.indexOf("running");
  const next = phases.indexOf("pending");
  if (ended === -1 && next === -1) return null;
  return { ended: ended === -1 ? null : ended, next: next === -1 ? null : next };
}

function advance(known: JobModel, job: JobModel, attempt: AttemptModel): Result {
  const { ended, next } = knownAdvance(known) ?? { ended: null, next: null };
  if (attempt.state !== "active") return refused(job, "conflict");
  const phases = [...attempt.phases];
  if (ended !== null && phases[ended] === "running") {
    if (attempt.sandboxes.some((sandbox) => sandbox.phase === ended && alive(sandbox)))
      return refused(job, "conflict");
    const ran = attempt.sandboxes.some(
      (sandbox) => sandbox.phase === ended && sandbox.released && sandbox.good,
    );
    if (!ran) return refused(job, "conflict");
    phases[ended] = "succeeded";
  }
  if (next === null) return { result: "ok", job: withAttempt(job, known, { phases }) };
  if (phases[next] === "pending") {
    if (phases.slice(0, next).some((state) => state !== "succeeded")) return refused(job, "conflict");
    if (modelPhases[next]?.kind !== "source" && !attempt.pins) return refused(job, "pins_missing");
    phases[next] = "running";
  }
  const planned = {
    phase: next,
    state: "planned",
    uid: false,
    released: false,
    good: false,
    chunks: 0,
    settled: false,
  } as const;
  if (
    attempt.sandboxes.length > (known.attempts.at(-1)?.sandboxes.length ?? 0) ||
    attempt.sandboxes.some(alive)
  ) {
    return refused(job, "conflict");
  }
  return {
    result: "ok",
    job: withAttempt(job, known, { phases, sandboxes: [...attempt.sandboxes, planned] }),
  };
}

function finish(
  asked: "succeeded" | "failed",
  known: JobModel,
  job: JobModel,
  attempt: AttemptModel,
): Result {
  if (attempt.state !== "active") return refused(job, attempt.outcome ?? "none");
  const outcome = job.cancelRequested ? "cancelled" : attempt.overdue ? "failed" : asked;
  const proven = attempt.sandboxes.every((sandbox) => !alive(sandbox) && (!sandbox.uid || sandbox.settled));
  if (!proven || attempt.phases.includes("running")) return refused(job, "conflict");
  const complete = attempt.declared && attempt.phases.every((state) => state === "succeeded");
  if (outcome === "succeeded" && !complete) return refused(job, "conflict");
  const phases = attempt.phases.map((state) => (state === "pending" ? "skipped" : state));
  const settled = withAttempt(job, known, {
    state: "finished",
    outcome,
    overdue: false,
    phases,
    slot: false,
  });
  return { result: outcome, job: { ...settled, ...afterwards(outcome, known.attempts.length) } };
}

function afterwards(outcome: Outcome, ordinal: number): Partial<JobModel> {
  switch (outcome) {
    case "succeeded":
      return { state: "succeeded", artifact: true };
    case "cancelled":
      return { state: "cancelled" };
    case "failed":
      return ordinal < 2
        ? { state: "queued", admission: { holder: null, expired: false } }
        : { state: "failed" };
    default:
      return outcome satisfies never;
  }
}

function clean(known: JobModel, job: JobModel, attempt: AttemptModel): Result {
  const left =
    attempt.sandboxes.some(({ state }) => state !== "removed") || (attempt.declared && !job.artifact);
  if (left || attempt.state === "active") return refused(job, "conflict");
  return { result: "ok", job: withAttempt(job, known, { state: "cleaned", lease: null }) };
}
