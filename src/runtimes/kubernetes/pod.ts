import { ApiError, isRecord } from "./api-error.ts";

/** The part of a Pod, as JSON, that we write or read. Anything else in it passes by. */
export interface Pod {
  readonly metadata: PodMetadata;
  readonly spec: PodSpec;
  readonly status?: PodStatus;
}

export interface PodMetadata {
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly generation?: number;
  readonly creationTimestamp: string;
  readonly deletionTimestamp?: string;
  readonly deletionGracePeriodSeconds?: number;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly finalizers?: readonly string[];
}

export interface PodSpec {
  readonly nodeName?: string;
  readonly schedulingGates?: readonly { readonly name: string }[];
  readonly activeDeadlineSeconds?: number;
  readonly terminationGracePeriodSeconds?: number;
  readonly containers: readonly { readonly name: string; readonly image?: string }[];
  readonly initContainers?: readonly { readonly name: string }[];
}

export interface PodStatus {
  readonly phase?: string;
  readonly reason?: string;
  readonly message?: string;
  readonly startTime?: string;
  readonly conditions?: readonly PodCondition[];
  readonly initContainerStatuses?: readonly ContainerStatus[];
  readonly containerStatuses?: readonly ContainerStatus[];
  readonly ephemeralContainerStatuses?: readonly ContainerStatus[];
}

export interface PodCondition {
  readonly type: string;
  readonly status: string;
  readonly reason?: string;
  readonly message?: string;
  /** The generation that its writer knew of. */
  readonly observedGeneration?: number;
}

export interface ContainerStatus {
  readonly name: string;
  readonly state?: ContainerState;
  readonly lastState?: ContainerState;
  readonly containerID?: string;
}

export interface ContainerState {
  readonly waiting?: { readonly reason?: string; readonly message?: string };
  readonly running?: { readonly startedAt?: string };
  readonly terminated?: Terminated;
}

export interface Terminated {
  readonly exitCode: number;
  readonly reason?: string;
  readonly message?: string;
  /** Null when the kubelet knows only that it does not run; 1970 when it never started. */
  readonly startedAt?: string | null;
  readonly finishedAt?: string | null;
}

/** The server's schema is trusted beyond these: without them nothing can be done with it. */
export function readPod(value: unknown): Pod {
  if (isRecord(value) && isRecord(value.metadata) && isRecord(value.spec)) {
    const { name, uid, resourceVersion } = value.metadata;
    const strings = [name, uid, resourceVersion].every((item) => typeof item === "string" && item !== "");
    // The cast names what the server's own schema promises for every pod.
    if (strings && Array.isArray(value.spec.containers)) return value as unknown as Pod;
  }
  throw new ApiError(502, "NotAPod", "the API server's answer is not a pod");
}

export interface PodPage {
  readonly items: readonly Pod[];
  readonly resourceVersion: string;
  readonly next: string | null;
}

export function readPodPage(value: unknown): PodPage {
  if (!isRecord(value) || !isRecord(value.metadata) || !Array.isArray(value.items ?? [])) {
    throw new ApiError(502, "NotAList", "the API server's answer is not a list of pods");
  }
  const { resourceVersion, continue: next } = value.metadata;
  const items: readonly unknown[] = Array.isArray(value.items) ? value.items : [];
  return {
    items: items.map(readPod),
    resourceVersion: typeof resourceVersion === "string" ? resourceVersion : "",
    next: typeof next === "string" && next !== "" ? next : null,
  };
}
