import { isRecord } from "./api-error.ts";
import type { Pod } from "./pod.ts";

/** What we write on a pod, and read again: the pod is the only place where its state is kept. */
export const gate = "holdfast.dev/held";
/** Keeps the object until we have seen the proof: without it a deleted pod vanishes while its process runs. */
export const finalizer = "holdfast.dev/proof-of-stop";
/** Of the sandbox, in a pod that may get others by an admission webhook. */
export const mainContainer = "main";

export const labels = {
  installation: "holdfast.dev/installation",
  sandbox: "holdfast.dev/sandbox",
} as const;

export const annotations = {
  specDigest: "holdfast.dev/spec-digest",
  tenant: "holdfast.dev/tenant",
  /** Decimal. Whoever takes over raises it first, which makes every patch of an older holder fail. */
  epoch: "holdfast.dev/epoch",
  holdLimitMs: "holdfast.dev/hold-limit-ms",
  /** RFC 3339, by the server's clock: set by the release. */
  deadline: "holdfast.dev/deadline",
  /** JSON of `StopMark`: set by the first stop. */
  stop: "holdfast.dev/stop",
} as const;

/** Why it was stopped by us: nothing else tells a stop from a deadline, as both are a deadline of the kubelet. */
export interface StopMark {
  readonly why: "asked" | "deadline" | "start_failed";
  readonly message: string;
  /** RFC 3339, by the server's clock. */
  readonly at: string;
}

const annotation = (pod: Pod, name: string): string | undefined => pod.metadata.annotations?.[name];

export const epochOf = (pod: Pod): bigint => {
  const text = annotation(pod, annotations.epoch) ?? "";
  return /^\d{1,19}$/.test(text) ? BigInt(text) : 0n;
};

export const isHeld = (pod: Pod): boolean => (pod.spec.schedulingGates ?? []).length > 0;
export const isDeleting = (pod: Pod): boolean => pod.metadata.deletionTimestamp !== undefined;
export const hasNode = (pod: Pod): boolean => (pod.spec.nodeName ?? "") !== "";

/** Everything of ours that changes a spec releases or deletes; the second raises the generation too. */
export const changedWhileHeld = (pod: Pod): boolean =>
  (pod.metadata.generation ?? 1) > (isDeleting(pod) ? 2 : 1);

/** Never bound and being deleted: the API server refuses to bind a deleting pod, so it can never run. */
export const neverBound = (pod: Pod): boolean => isDeleting(pod) && !hasNode(pod);

export function stopMarkOf(pod: Pod): StopMark | null {
  const text = annotation(pod, annotations.stop);
  if (text === undefined) return null;
  const value = parse(text);
  const { why, message, at } = isRecord(value) ? value : {};
  return {
    why: why === "deadline" || why === "start_failed" ? why : "asked",
    message: typeof message === "string" ? message : "",
    at: typeof at === "string" ? at : "",
  };
}

/** Milliseconds since 1970; null when it was not released, or says nothing readable. */
export function deadlineOf(pod: Pod): number | null {
  return time(annotation(pod, annotations.deadline));
}

export function holdEndOf(pod: Pod): number | null {
  const limit = annotation(pod, annotations.holdLimitMs) ?? "";
  const created = time(pod.metadata.creationTimestamp);
  return created === null || !/^\d{1,15}$/.test(limit) ? null : created + Number(limit);
}

export function time(text: string | null | undefined): number | null {
  const at = Date.parse(text ?? "");
  return Number.isNaN(at) ? null : at;
}

/** A path of JSON patch. */
export const pointer = (...steps: readonly (string | number)[]): string =>
  steps.map((step) => `/${String(step).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");

export const annotationPointer = (name: string): string => pointer("metadata", "annotations", name);

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
