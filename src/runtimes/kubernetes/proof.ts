import type { ContainerStatus, Pod, PodCondition } from "./pod.ts";
import { hasNode, neverBound } from "./pod-marks.ts";

/**
 * Whether nothing of a pod runs and nothing of it can start again, shown by what only its kubelet writes.
 * Phase, deletion timestamp, a grace of 0, conditions of disruption and even a 404 are written for nodes that
 * nobody reaches, while the process goes on. The object's finalizer is ours, so it is still there to be read.
 */
export type Proof = { readonly stopped: true; readonly proof: string } | { readonly stopped: false };

export function proofOf(pod: Pod): Proof {
  if (neverBound(pod))
    return { stopped: true, proof: "deleted before it had a node: it can't be bound any more" };
  const phase = pod.status?.phase;
  if (phase !== "Succeeded" && phase !== "Failed") return { stopped: false };
  const statuses = allStatuses(pod);
  const names = [...(pod.spec.initContainers ?? []), ...pod.spec.containers].map(({ name }) => name);
  const covered = names.every((name) => statuses.some((status) => status.name === name));
  if (!hasNode(pod) || !covered || !statuses.every((status) => hasEnded(pod, status)))
    return { stopped: false };
  const words = statuses.map((status) => `${status.name} ${stateWords(status)}`);
  return { stopped: true, proof: `the kubelet reports that ${words.join(", ")}` };
}

/**
 * A container that never ran may stay `waiting` for ever. It counts as ended when the kubelet has closed the
 * pod: these two conditions with these reasons are written by nobody else. Without them it may be a kubelet
 * that is cut off and about to start it.
 */
function hasEnded(pod: Pod, status: ContainerStatus): boolean {
  if (status.state?.running !== undefined) return false;
  if (status.state?.terminated !== undefined) return true;
  return (status.containerID ?? "") === "" && kubeletClosed(pod) && sandboxGone(pod);
}

/** The kubelet has decided that the pod is over; its containers may still be ending. */
export function kubeletClosed(pod: Pod): boolean {
  const ready = conditionOf(pod, "ContainersReady");
  return ready?.status === "False" && (ready.reason === "PodFailed" || ready.reason === "PodCompleted");
}

function sandboxGone(pod: Pod): boolean {
  return conditionOf(pod, "PodReadyToStartContainers")?.status === "False";
}

/**
 * The node controller's mark: it sets `Ready` to False, without a reason, on the pods of a node whose kubelet
 * has been silent, and leaves `ContainersReady` as the kubelet wrote it.
 */
export function nodeIsSilent(pod: Pod): boolean {
  const ready = conditionOf(pod, "Ready");
  return (
    ready?.status === "False" &&
    (ready.reason ?? "") === "" &&
    conditionOf(pod, "ContainersReady")?.status === "True"
  );
}

export function conditionOf(pod: Pod, type: string): PodCondition | undefined {
  return pod.status?.conditions?.find((condition) => condition.type === type);
}

export function allStatuses(pod: Pod): readonly ContainerStatus[] {
  const { initContainerStatuses, containerStatuses, ephemeralContainerStatuses } = pod.status ?? {};
  return [
    ...(initContainerStatuses ?? []),
    ...(containerStatuses ?? []),
    ...(ephemeralContainerStatuses ?? []),
  ];
}

/** Some container was made on the node, now or before: it may have written output. */
export function everHadContainer(pod: Pod): boolean {
  return allStatuses(pod).some(
    ({ containerID, state, lastState }) =>
      (containerID ?? "") !== "" || state?.running !== undefined || lastState?.terminated !== undefined,
  );
}

function stateWords({ state }: ContainerStatus): string {
  if (state?.terminated !== undefined) return `ended with ${state.terminated.exitCode}`;
  return "never started";
}
