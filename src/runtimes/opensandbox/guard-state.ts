import { type Observation, RuntimeRefusal, type SandboxOutcome } from "../../core/runtime.port.ts";
import { type Instant, instant } from "../../core/time.ts";
import { ServiceError } from "./service-error.ts";

const phases = ["none", "held", "released", "started", "stopping", "ended"] as const;
const endings = ["exited", "stopped", "deadline", "start_failed", "never_started", "lost"] as const;
const refusals = ["superseded", "stopping", "gone", "invalid", "retired", "lost"] as const;

/** What the guard in a sandbox says of it. */
export interface GuardState {
  /** How many states there were: a change has a higher number. */
  readonly number: number;
  readonly epoch: bigint;
  /** `none`: nobody has claimed it, or its disk was lost. */
  readonly phase: (typeof phases)[number];
  /** Whether anybody made it theirs: what was retired or stopped before never was. */
  readonly claimed: boolean;
  readonly kind: (typeof endings)[number] | null;
  readonly exitCode: number | null;
  readonly startedAt: Instant | null;
  readonly finishedAt: Instant | null;
  readonly message: string;
}

export interface GuardAnswer {
  readonly state: GuardState;
  readonly refusal: { readonly reason: (typeof refusals)[number]; readonly message: string } | null;
}

/** One line of a guard's output: a word of its own, or a line of data. */
export type GuardLine =
  | { readonly is: "word"; readonly word: string; readonly rest: string }
  | { readonly is: "data"; readonly text: string };

export function readGuardLine(text: string): GuardLine {
  const match = /^holdfast (\S+) ?(.*)$/.exec(text);
  return match === null ? { is: "data", text } : { is: "word", word: match[1] ?? "", rest: match[2] ?? "" };
}

export function readState(line: string): GuardState {
  const [number, epoch, phase, , , , , , , started, kind, code, finished, load, ...message] = line.split(" ");
  const found = phases.find((one) => one === phase);
  if (found === undefined || !/^\d+$/.test(number ?? "") || !/^\d{1,19}$/.test(epoch ?? "")) {
    throw new ServiceError(502, "", "the guard's answer is not a state");
  }
  const words = message.join(" ").trim();
  return {
    number: Number(number),
    epoch: BigInt(epoch ?? ""),
    phase: found,
    claimed: load !== undefined && load !== "-",
    kind: endings.find((one) => one === kind) ?? null,
    exitCode: /^\d{1,3}$/.test(code ?? "") ? Number(code) : null,
    startedAt: readSecond(started),
    finishedAt: readSecond(finished),
    message: words === "-" ? "" : words,
  };
}

export function readRefusal(line: string): GuardAnswer["refusal"] {
  const [word, ...rest] = line.split(" ");
  const reason = refusals.find((one) => one === word);
  if (reason === undefined) throw new ServiceError(502, "", "the guard's answer is not a refusal");
  return { reason, message: rest.join(" ") };
}

/** Whether it can't run any more, by the guard's own record. */
export const hasEnded = (state: GuardState): boolean => state.phase === "ended";

/**
 * `none` never comes here: what it means stands in the service's metadata. Released and not yet started is on its
 * way: whoever looks starts it.
 */
export function observationOf(uid: string, state: GuardState): Observation {
  switch (state.phase) {
    case "none":
      return { state: "unproven", reason: "its guard has no record of it" };
    case "held":
      return { state: "held", uid, epoch: state.epoch };
    case "released":
    case "started":
      return { state: "running", uid, startedAt: state.startedAt };
    case "stopping":
      return { state: "stopping", uid };
    case "ended":
      return { state: "stopped", uid, outcome: outcomeOf(state), proof };
    default:
      return state.phase satisfies never;
  }
}

const proof = "the guard's own record, written after it found no process of the sandbox";

function outcomeOf(state: GuardState): SandboxOutcome {
  const { exitCode, startedAt, finishedAt } = state;
  const kind = state.kind ?? "unknown";
  return { kind, exitCode, signal: null, message: wordsOf(state), startedAt, finishedAt };
}

function wordsOf({ kind, exitCode, message }: GuardState): string {
  const code = exitCode === null ? "" : ` with exit code ${exitCode}`;
  const why = message === "" ? "" : `: ${message.slice(0, 900)}`;
  switch (kind) {
    case "exited":
      return `It ended by itself${code}.`;
    case "stopped":
      return `A controller stopped it; it ended${code}${why}.`;
    case "deadline":
      return `Its time limit passed; it ended${code}${why}.`;
    case "start_failed":
      return `The command could not be started${why}.`;
    case "never_started":
      return `It never started${why}.`;
    case "lost":
      return `It ended without a record of how${why}.`;
    case null:
      return "It ended, and its guard can't tell how.";
    default:
      return kind satisfies never;
  }
}

/** What a refusal of the guard means to whoever asked. */
export function refusalOf(
  name: string,
  epoch: bigint,
  { refusal, state }: GuardAnswer,
): RuntimeRefusal | null {
  if (refusal === null) return null;
  const { reason, message } = refusal;
  switch (reason) {
    case "superseded":
      return new RuntimeRefusal("superseded", `epoch ${epoch} is older than ${state.epoch}, which stands`);
    case "stopping":
      return new RuntimeRefusal("stopping", `${name} was stopped before it was released`);
    case "invalid":
      return new RuntimeRefusal("invalid", `${name}: ${message}`);
    case "gone":
    case "retired":
    case "lost":
      return new RuntimeRefusal("gone", `the guard of ${name} has no record of it`);
    default:
      return reason satisfies never;
  }
}

function readSecond(text: string | undefined): Instant | null {
  return text !== undefined && /^\d{1,12}$/.test(text) ? instant(BigInt(text) * 1_000_000n) : null;
}
