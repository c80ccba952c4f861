/** A Pod as the double keeps it: the JSON that the API server shows. */
export interface PodObject {
  metadata: {
    name: string;
    namespace: string;
    uid: string;
    resourceVersion: string;
    generation: number;
    creationTimestamp: string;
    deletionTimestamp?: string;
    deletionGracePeriodSeconds?: number;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    finalizers?: string[];
  };
  spec: PodSpecObject;
  status: PodStatusObject;
}

export interface PodSpecObject {
  [member: string]: unknown;
  containers: ContainerObject[];
  restartPolicy: string;
  terminationGracePeriodSeconds: number;
  activeDeadlineSeconds?: number;
  nodeName?: string;
  nodeSelector?: Record<string, string>;
  schedulingGates?: { name: string }[];
  tolerations: object[];
}

export interface ContainerObject {
  [member: string]: unknown;
  name: string;
  image: string;
  command?: string[];
  env?: {
    name: string;
    value?: string;
    valueFrom?: { secretKeyRef: { name: string; key: string } };
  }[];
}

export interface PodStatusObject {
  [member: string]: unknown;
  phase: string;
  reason?: string;
  message?: string;
  startTime?: string;
  conditions: ConditionObject[];
  containerStatuses?: ContainerStatusObject[];
}

export interface ConditionObject {
  type: string;
  status: string;
  lastProbeTime: null;
  lastTransitionTime: string;
  reason?: string;
  message?: string;
  observedGeneration?: number;
}

export interface ContainerStatusObject {
  name: string;
  state: Record<string, unknown>;
  lastState: Record<string, unknown>;
  ready: boolean;
  restartCount: number;
  image: string;
  imageID: string;
  containerID?: string;
  started: boolean;
}

/** Whole seconds, as all times of the API. */
export const timestamp = (at = Date.now()): string => `${new Date(at).toISOString().slice(0, 19)}Z`;

/** The answer of a request for one object: a list's items lack the first two members. */
export const shown = (pod: PodObject): object => ({ kind: "Pod", apiVersion: "v1", ...pod });

export const condition = (
  type: string,
  status: "True" | "False",
  reason?: string,
  message?: string,
): ConditionObject => ({
  type,
  status,
  lastProbeTime: null,
  lastTransitionTime: timestamp(),
  ...(reason === undefined ? {} : { reason }),
  ...(message === undefined ? {} : { message }),
});

export const gated = (): ConditionObject =>
  condition(
    "PodScheduled",
    "False",
    "SchedulingGated",
    "Scheduling is blocked due to non-empty scheduling gates",
  );
