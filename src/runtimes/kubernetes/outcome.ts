import type { SandboxOutcome } from "../../core/runtime.port.ts";
import { type Instant, instant } from "../../core/time.ts";
import type { ContainerStatus, Pod, Terminated } from "./pod.ts";
import {
  changedWhileHeld,
  deadlineOf,
  isDeleting,
  isHeld,
  mainContainer,
  neverBound,
  stopMarkOf,
  time,
} from "./pod-marks.ts";
import { conditionOf } from "./proof.ts";

type Kind = SandboxOutcome["kind"];

const messageLengthMax = 1_000;

/**
 * How a pod that is proven to have stopped ended. Judged by its main container, never by the phase, which the
 * control plane writes too: a container that exited with 0 did its work, whatever became of its pod.
 */
export function outcomeOf(pod: Pod): SandboxOutcome {
  if (neverBound(pod)) return withoutNode(pod);
  const main = pod.status?.containerStatuses?.find(({ name }) => name === mainContainer);
  const ended = main?.state?.terminated;
  if (main === undefined || ended === undefined) return neverRan(pod, main);
  const [kind, message] = judge(pod, main, ended);
  const known = ended.reason !== "ContainerStatusUnknown";
  return {
    kind,
    exitCode: known && kind !== "start_failed" ? ended.exitCode : null,
    signal: null,
    message: message.slice(0, messageLengthMax),
    startedAt:
      kind === "start_failed" ? null : instantOf(ended.startedAt ?? main.lastState?.terminated?.startedAt),
    finishedAt: instantOf(ended.finishedAt),
  };
}

function judge(pod: Pod, main: ContainerStatus, ended: Terminated): readonly [Kind, string] {
  const code = `exit code ${ended.exitCode}`;
  if (ended.reason === "ContainerStatusUnknown") return unknownEnd(pod, main, ended);
  if (ended.reason === "StartError" || ended.reason === "ContainerCannotRun") {
    return ["start_failed", `Its command could not be started: ${startMessage(ended.message ?? "")}`];
  }
  if (ended.reason === "OOMKilled") {
    return [
      "out_of_memory",
      `It, or a process of it, was killed for using more memory than its limit (${code}).`,
    ];
  }
  if (pod.status?.reason === "DeadlineExceeded") return closedByUs(pod, code);
  if (ended.exitCode === 0) return ["exited", "It ended by itself with exit code 0."];
  const evicted = evictionWords(pod, ended);
  if (evicted !== null) return ["evicted", `${evicted} It ended with ${code}.`];
  return ["exited", `It ended by itself with ${code}${signalWords(ended.exitCode)}.`];
}

/** The kubelet ends a pod whose `activeDeadlineSeconds` have passed: ours, or lowered by our stop. */
function closedByUs(pod: Pod, code: string): readonly [Kind, string] {
  const mark = stopMarkOf(pod);
  if (mark?.why === "asked") return ["stopped", `It was stopped as asked and ended with ${code}.`];
  if (mark?.why === "start_failed") return ["start_failed", mark.message];
  return ["deadline", `Its deadline passed and it was ended with ${code}.`];
}

/** The kubelet knows that it does not run, not how it ended, nor, without a last state, that it ever did. */
function unknownEnd(pod: Pod, main: ContainerStatus, ended: Terminated): readonly [Kind, string] {
  const ran = main.lastState?.terminated !== undefined;
  const closed = stopMarkOf(pod) !== null || pod.status?.reason === "DeadlineExceeded";
  if (!ran && closed) return closedByUs(pod, "no exit code");
  const evicted = evictionWords(pod, ended);
  if (evicted !== null) return ["evicted", `${evicted} How it ended is not known.`];
  return ["lost", `${lostWords}: ${ended.message ?? "no message"}`];
}

const lostWords = "Its node lost it, as by a restart; how it ended is not known";

function withoutNode(pod: Pod): SandboxOutcome {
  const nothing = { exitCode: null, signal: null, startedAt: null, finishedAt: null };
  if (isHeld(pod)) {
    const message = changedWhileHeld(pod)
      ? "Its spec was changed by somebody else while it was held, so it was ended without being started."
      : "It was ended while it was held, and never started.";
    return { kind: "never_started", ...nothing, message };
  }
  const deadline = deadlineOf(pod);
  const deleted = time(pod.metadata.deletionTimestamp);
  const late = deadline !== null && deleted !== null && deleted >= deadline;
  const scheduled = conditionOf(pod, "PodScheduled");
  const why =
    scheduled?.reason === "Unschedulable" ? ` No node could take it: ${scheduled.message ?? ""}` : "";
  const message = late ? "Its deadline passed before it had a node." : "It was stopped before it had a node.";
  return {
    kind: late ? "deadline" : "stopped",
    ...nothing,
    message: (message + why).slice(0, messageLengthMax),
  };
}

/** Its main container stayed `waiting` for ever: an init container failed, or the pod was closed before. */
function neverRan(pod: Pod, main: ContainerStatus | undefined): SandboxOutcome {
  const nothing = { exitCode: null, signal: null, startedAt: null, finishedAt: null };
  const failed = pod.status?.initContainerStatuses?.find(
    ({ state }) => state?.terminated !== undefined && state.terminated.exitCode !== 0,
  );
  const mark = stopMarkOf(pod);
  if (mark?.why === "asked") {
    return { kind: "stopped", ...nothing, message: "It was stopped as asked before its command started." };
  }
  if (mark === null && pod.status?.reason === "DeadlineExceeded") {
    return { kind: "deadline", ...nothing, message: "Its deadline passed before its command started." };
  }
  const words = mark?.message ?? (failed === undefined ? null : initWords(failed.name));
  if (words !== null) return { kind: "start_failed", ...nothing, message: words.slice(0, messageLengthMax) };
  // What a node shows for a moment when it was restarted: it may have run before.
  const reason = main?.state?.waiting?.reason ?? "no reason";
  return { kind: "lost", ...nothing, message: `${lostWords}: ${reason}`.slice(0, messageLengthMax) };
}

const initWords = (name: string): string =>
  `Its init container ${name} failed, so its command was not started.`;

/** Null when nobody but the container itself ended it. */
function evictionWords(pod: Pod, ended: Terminated): string | null {
  if (pod.status?.reason === "Evicted") return `It was evicted by its node: ${pod.status.message ?? ""}`;
  const disrupted = conditionOf(pod, "DisruptionTarget");
  if (disrupted?.status === "True") return `It was evicted (${disrupted.reason ?? "no reason"}).`;
  return deletedWhileItRan(pod, ended) ? "Its pod was deleted by somebody else." : null;
}

/**
 * A pod that had finished is deleted too, by us at the last. A deletion raises the generation: the kubelet knew
 * it when it closed the pod, or did not. Once the kubelet has settled the deletion its grace is 0 in both cases.
 */
function deletedWhileItRan(pod: Pod, ended: Terminated): boolean {
  if (!isDeleting(pod) || stopMarkOf(pod) !== null) return false;
  if ((pod.metadata.deletionGracePeriodSeconds ?? 0) > 0) return true;
  const known = conditionOf(pod, "ContainersReady")?.observedGeneration;
  if (known === undefined) return signalNames[ended.exitCode] !== undefined;
  return known === pod.metadata.generation;
}

const signalNames: Readonly<Record<number, string>> = { 130: "SIGINT", 137: "SIGKILL", 143: "SIGTERM" };

/** A kill appears as 128 and its number; a program may also exit with such a code by itself. */
const signalWords = (code: number): string =>
  signalNames[code] === undefined ? "" : `, as after ${signalNames[code]}`;

/** The runtime's message is a chain; what a person needs is its end. */
const startMessage = (message: string): string => message.slice(-400).replace(/^.*?(?=exec: )/s, "");

/** 1970 is how a container that never started says so. */
function instantOf(text: string | null | undefined): Instant | null {
  const at = time(text);
  return at === null || at <= 0 ? null : instant(BigInt(at) * 1000n);
}
