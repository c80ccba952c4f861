import type { Pod } from "./pod.ts";
import {
  changedWhileHeld,
  deadlineOf,
  hasNode,
  holdEndOf,
  isDeleting,
  isHeld,
  type StopMark,
  stopMarkOf,
  time,
} from "./pod-marks.ts";
import { everHadContainer, proofOf } from "./proof.ts";

/** What a pod needs from whoever looks at it, as nothing on the node or in the control plane does it. */
export type Step =
  | { readonly do: "nothing" }
  /** Never bound, or without any container ever: nothing is lost, and nothing else would end it. */
  | { readonly do: "delete" }
  | { readonly do: "stop"; readonly mark: Omit<StopMark, "at"> }
  | { readonly do: "lower"; readonly seconds: number };

/** These don't pass by waiting: a person must change something. */
const hopeless = new Set([
  "CreateContainerConfigError",
  "CreateContainerError",
  "InvalidImageName",
  "ErrImageNeverPull",
]);
/** A pull may fail for a while: a registry that restarts. */
const pullFailures = new Set(["ErrImagePull", "ImagePullBackOff"]);
const pullPatienceMs = 120_000;
/** Beyond its grace: after this a stop of a pod without containers is taken to hang, as with a missing volume. */
const stopPatienceMs = 10_000;
/** Clocks of whole seconds, and the kubelet's own delay. */
const lowerToleranceMs = 2_000;

/** `now` is the server's clock, milliseconds. */
export function nextStep(pod: Pod, now: number): Step {
  if (proofOf(pod).stopped) return { do: "nothing" };
  if (!hasNode(pod)) return { do: withoutNode(pod, now) ? "delete" : "nothing" };
  if (isDeleting(pod)) return { do: "nothing" };
  const mark = stopMarkOf(pod);
  if (mark !== null) return { do: hangs(pod, mark, now) ? "delete" : "nothing" };
  const failure = startFailure(pod, now);
  if (failure !== null) return { do: "stop", mark: { why: "start_failed", message: failure } };
  return deadlineStep(pod, now);
}

/**
 * A held pod past its hold limit (E21), or a released one past its deadline (E4): no clock runs for it. And a held one
 * that is not what was created any more, so that nobody will release it.
 */
function withoutNode(pod: Pod, now: number): boolean {
  if (isHeld(pod) && changedWhileHeld(pod)) return true;
  const end = isHeld(pod) ? holdEndOf(pod) : deadlineOf(pod);
  return end !== null && now >= end;
}

function hangs(pod: Pod, mark: StopMark, now: number): boolean {
  const grace = (pod.spec.terminationGracePeriodSeconds ?? 30) * 1000;
  const since = time(mark.at);
  return since !== null && now - since > grace + stopPatienceMs && !everHadContainer(pod);
}

function startFailure(pod: Pod, now: number): string | null {
  const { initContainerStatuses = [], containerStatuses = [] } = pod.status ?? {};
  for (const { name, state } of [...initContainerStatuses, ...containerStatuses]) {
    const { reason = "", message = "" } = state?.waiting ?? {};
    const waited = now - (time(pod.status?.startTime) ?? now);
    if (hopeless.has(reason) || (pullFailures.has(reason) && waited > pullPatienceMs)) {
      return `Its container ${name} could not be started: ${reason}: ${message}`.slice(0, 900);
    }
  }
  return null;
}

/**
 * The kubelet counts from when it took the pod, which may be long after the release: lower what it allows to
 * what was left then. It can only ever be lowered.
 */
function deadlineStep(pod: Pod, now: number): Step {
  const deadline = deadlineOf(pod);
  const started = time(pod.status?.startTime);
  const allowed = pod.spec.activeDeadlineSeconds;
  if (deadline === null) return { do: "nothing" };
  if (now >= deadline + lowerToleranceMs && (started === null || !everHadContainer(pod))) {
    return { do: "stop", mark: { why: "deadline", message: "Its deadline passed before it started." } };
  }
  if (started === null || allowed === undefined) return { do: "nothing" };
  const excess = started + allowed * 1000 - deadline;
  if (excess <= lowerToleranceMs) return { do: "nothing" };
  return { do: "lower", seconds: Math.max(1, Math.ceil((deadline - started) / 1000)) };
}
