import { type Microseconds, toMilliseconds } from "../../core/time.ts";
import type { Pod } from "./pod.ts";
import type { PatchOperation } from "./pod-api.ts";
import {
  annotationPointer,
  annotations,
  epochOf,
  finalizer,
  pointer,
  type StopMark,
  stopMarkOf,
} from "./pod-marks.ts";

/** The server's own bound of a deadline. */
const deadlineSecondsMax = 2_147_483_647;

/** Every patch is of this object, under the epoch that was read: a takeover in between makes it fail as a whole. */
function guards(pod: Pod): readonly PatchOperation[] {
  return [
    { op: "test", path: pointer("metadata", "uid"), value: pod.metadata.uid },
    { op: "test", path: annotationPointer(annotations.epoch), value: String(epochOf(pod)) },
  ];
}

export function fencePatch(pod: Pod, epoch: bigint): readonly PatchOperation[] {
  return [
    ...guards(pod),
    { op: "replace", path: annotationPointer(annotations.epoch), value: String(epoch) },
  ];
}

/**
 * Let it start, all in one: it must not be being deleted, and its spec must be the one that was created (an
 * image may be changed while a pod is held, which raises the generation). Setting the gates to `[]` instead of
 * removing them makes a repetition succeed.
 */
export function releasePatch(pod: Pod, limit: Microseconds, now: number): readonly PatchOperation[] {
  const left = toMilliseconds(limit);
  const seconds = Math.min(deadlineSecondsMax, Math.max(1, Math.ceil(left / 1000)));
  const deadline = new Date(Math.min(now + left, 8.64e15)).toISOString();
  return [
    ...guards(pod),
    { op: "test", path: pointer("metadata", "deletionTimestamp"), value: null },
    { op: "test", path: pointer("metadata", "generation"), value: pod.metadata.generation },
    { op: "add", path: pointer("spec", "activeDeadlineSeconds"), value: seconds },
    { op: "add", path: annotationPointer(annotations.deadline), value: deadline },
    { op: "add", path: pointer("spec", "schedulingGates"), value: [] },
  ];
}

/**
 * Stop what has a node: a deadline of one second makes the kubelet end the containers, with their grace, and
 * keep their logs; a DELETE would lose them. Null: it was stopped before.
 */
export function stopPatch(pod: Pod, mark: StopMark): readonly PatchOperation[] | null {
  const stood = stopMarkOf(pod);
  if (stood !== null && pod.spec.activeDeadlineSeconds === 1) return null;
  return [
    ...guards(pod),
    { op: "add", path: pointer("spec", "activeDeadlineSeconds"), value: 1 },
    { op: "add", path: annotationPointer(annotations.stop), value: JSON.stringify(stood ?? mark) },
  ];
}

export function lowerPatch(pod: Pod, seconds: number): readonly PatchOperation[] {
  return [...guards(pod), { op: "add", path: pointer("spec", "activeDeadlineSeconds"), value: seconds }];
}

/** Ours only, tested in its place. Null: it is not there. */
export function finalizerPatch(pod: Pod): readonly PatchOperation[] | null {
  const index = (pod.metadata.finalizers ?? []).indexOf(finalizer);
  if (index === -1) return null;
  const path = pointer("metadata", "finalizers", index);
  return [
    { op: "test", path: pointer("metadata", "uid"), value: pod.metadata.uid },
    { op: "test", path, value: finalizer },
    { op: "remove", path },
  ];
}
