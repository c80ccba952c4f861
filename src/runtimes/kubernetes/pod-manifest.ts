import { type PrepareRequest, RuntimeRefusal } from "../../core/runtime.port.ts";
import { toMilliseconds } from "../../core/time.ts";
import { annotations, finalizer, gate, labels, mainContainer } from "./pod-marks.ts";

/** What a platform team decides about every pod. */
export interface PodSettings {
  /** For sandboxes that name none. */
  readonly image: string | null;
  readonly runAsUser: number;
  readonly runAsGroup: number;
  readonly nodeSelector?: Readonly<Record<string, string>>;
  readonly tolerations?: readonly unknown[];
  readonly imagePullSecrets?: readonly string[];
  readonly runtimeClassName?: string;
  readonly priorityClassName?: string;
}

export const defaultPodSettings: PodSettings = { image: null, runAsUser: 65532, runAsGroup: 65532 };

const entriesMax = 1_000;
/** The server refuses objects above 3 MiB; etcd behind it above 1.5. */
const manifestBytesMax = 1024 * 1024;

/**
 * A bare pod, held by a scheduling gate. It passes the restricted security profile, has no service account
 * token, no service links, and no deadline yet: a deadline runs from the start on the node, so the release sets
 * it. No owner reference: one to an object that is gone deletes the pod at once.
 */
export function podManifest(request: PrepareRequest, settings: PodSettings): object {
  const { spec } = request;
  const manifest = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: request.name,
      labels: { [labels.installation]: request.installation, [labels.sandbox]: request.sandbox },
      annotations: {
        [annotations.specDigest]: request.specDigest,
        [annotations.tenant]: request.tenant,
        [annotations.epoch]: String(request.epoch),
        [annotations.holdLimitMs]: String(toMilliseconds(request.holdLimit)),
      },
      finalizers: [finalizer],
    },
    spec: {
      restartPolicy: "Never",
      schedulingGates: [{ name: gate }],
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      terminationGracePeriodSeconds: graceSeconds(spec.grace),
      securityContext: {
        runAsNonRoot: true,
        runAsUser: settings.runAsUser,
        runAsGroup: settings.runAsGroup,
        fsGroup: settings.runAsGroup,
        seccompProfile: { type: "RuntimeDefault" },
      },
      containers: [container(request, settings)],
      volumes: ["work", "tmp"].map((name) => ({
        name,
        emptyDir: { sizeLimit: String(spec.limits.diskBytes) },
      })),
      ...(settings.nodeSelector === undefined ? {} : { nodeSelector: settings.nodeSelector }),
      ...(settings.tolerations === undefined ? {} : { tolerations: settings.tolerations }),
      ...(settings.imagePullSecrets === undefined
        ? {}
        : { imagePullSecrets: settings.imagePullSecrets.map((name) => ({ name })) }),
      ...(settings.runtimeClassName === undefined ? {} : { runtimeClassName: settings.runtimeClassName }),
      ...(settings.priorityClassName === undefined ? {} : { priorityClassName: settings.priorityClassName }),
    },
  };
  if (Buffer.byteLength(JSON.stringify(manifest)) > manifestBytesMax) {
    throw invalid(`the pod would be larger than ${manifestBytesMax} bytes`);
  }
  return manifest;
}

/** A grace that has begun can't be shortened, so this is the bound of every stop. Whole seconds, one at least. */
export const graceSeconds = (grace: bigint): number => Math.max(1, Math.ceil(toMilliseconds(grace) / 1000));

export const imageOf = (request: PrepareRequest, settings: PodSettings): string => {
  const image = request.spec.image ?? settings.image;
  if (image === null || image === "") throw invalid("the sandbox names no image and there is no default");
  return image;
};

function container(request: PrepareRequest, settings: PodSettings): object {
  const { spec } = request;
  const { cpuMillicores, memoryBytes, diskBytes } = spec.limits;
  const limits = {
    cpu: `${cpuMillicores}m`,
    memory: String(memoryBytes),
    "ephemeral-storage": String(diskBytes),
  };
  return {
    name: mainContainer,
    image: imageOf(request, settings),
    command: spec.command.map(literal),
    workingDir: "/work",
    env: environment(request),
    resources: { limits, requests: limits },
    securityContext: {
      allowPrivilegeEscalation: false,
      privileged: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"] },
    },
    volumeMounts: [
      { name: "work", mountPath: "/work" },
      { name: "tmp", mountPath: "/tmp" },
    ],
  };
}

/** The kubelet expands `$(NAME)` and reads `$$` as `$`, in commands and in values: doubling each keeps them as they are. */
const literal = (value: string): string => value.replaceAll("$", () => "$$");

function environment({ spec, privateEnv }: PrepareRequest): readonly object[] {
  const plain = { HOME: "/work", TMPDIR: "/tmp", ...spec.env, ...privateEnv };
  const values = Object.entries(plain).map(([name, value]) => ({ name, value: literal(value) }));
  const secrets = Object.entries(spec.secrets).map(([name, { name: secret, key }]) => ({
    name,
    valueFrom: { secretKeyRef: { name: secret, key } },
  }));
  return [...values, ...secrets];
}

/** Refuse at once what the server would refuse, or read otherwise than it was meant. */
export function checkRequest(request: PrepareRequest, installation: string): void {
  checkName(request.name);
  if (request.installation !== installation) throw invalid("it belongs to another installation");
  if (!/^[0-9a-f]{64}$/.test(request.specDigest)) throw invalid("the spec digest is no SHA-256 in hex");
  if (request.holdLimit <= 0n) throw invalid("the hold limit is not positive");
  if (request.epoch < 0n) throw invalid("the epoch is negative");
  const { command, env, secrets, grace } = request.spec;
  if (grace < 0n) throw invalid("the grace is negative");
  if (command[0] === undefined || command[0] === "") throw invalid("the command is empty");
  const names = [...Object.keys({ ...env, ...request.privateEnv }), ...Object.keys(secrets)];
  if (names.length + command.length > entriesMax)
    throw invalid(`more than ${entriesMax} arguments and variables`);
  if (!names.every((name) => /^[A-Za-z_][A-Za-z0-9_]{0,255}$/.test(name))) {
    throw invalid("an environment name is not valid");
  }
  for (const { name, key } of Object.values(secrets)) {
    if (!nameShape.test(name) || !/^[-._a-zA-Z0-9]{1,253}$/.test(key)) {
      throw invalid("a secret's name or key is not one of a Kubernetes Secret");
    }
  }
}

const nameShape = /^[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?$/;

/** Names that we make: no dots, so that they are host names too. */
export function checkName(name: string): string {
  if (!nameShape.test(name)) throw invalid("the sandbox's name is not a name of a pod");
  return name;
}

const invalid = (message: string): RuntimeRefusal => new RuntimeRefusal("invalid", message);
