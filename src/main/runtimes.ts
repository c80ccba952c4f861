import { dirname, join } from "node:path";
import { configKeys } from "../config/keys.ts";
import { type Config, type OptionalKey, required } from "../config.ts";
import { HoldfastError, isHoldfastError } from "../core/errors.ts";
import type { Runtime } from "../core/runtime.port.ts";
import { toMilliseconds } from "../core/time.ts";
import type { KubernetesConnection } from "../runtimes/kubernetes/connection.ts";
import { type ConnectionSource, connectionFrom } from "../runtimes/kubernetes/kube-config.ts";
import { kubernetesRuntime } from "../runtimes/kubernetes/kubernetes-runtime.ts";
import type { PodSettings } from "../runtimes/kubernetes/pod-manifest.ts";
import type { SeenCall } from "../runtimes/kubernetes/request.ts";
import { openSandboxRuntime } from "../runtimes/opensandbox/opensandbox-runtime.ts";
import { processRuntime } from "../runtimes/process/process-runtime.ts";

/** What `HOLDFAST_RUNTIME` and `--runtime` may say. */
export type RuntimeKind = Config["runtime"];
export const runtimeKinds = [
  "process",
  "kubernetes",
  "opensandbox",
] as const satisfies readonly RuntimeKind[];

export interface RuntimeChoice {
  readonly kind: RuntimeKind;
  readonly installation: string;
  /** For counting what is asked of an API server. */
  readonly onRequest?: SeenCall;
}

/** `node` in a command of the process runtime is the Node that runs us. */
export const searchPath = `${dirname(process.execPath)}:/usr/local/bin:/usr/bin:/bin`;

/** With its framing, far above the attempt's bound: that one is to cut off, with its one mark. */
export const runtimeLogBytesMax = (logBytesMax: number): number => 4 * logBytesMax;

/** What `openRuntime` can't do without. */
export function runtimeKeysNeeded(kind: RuntimeKind): readonly OptionalKey[] {
  switch (kind) {
    case "process":
      return ["sandboxDirectory"];
    case "kubernetes":
      return ["kubernetesNamespace"];
    case "opensandbox":
      return ["openSandboxUrl"];
    default:
      return kind satisfies never;
  }
}

/**
 * The only place that chooses where sandboxes run. What a runtime needs and the configuration lacks is named by
 * its key, before anything is started.
 */
export async function openRuntime(config: Config, choice: RuntimeChoice): Promise<Runtime> {
  const { installation } = choice;
  const logBytesMax = runtimeLogBytesMax(config.logBytesMax);
  switch (choice.kind) {
    case "process": {
      const directory = required(config, "sandboxDirectory");
      const secretsDirectory = config.secretsDirectory ?? join(directory, ".secrets");
      return processRuntime({ directory, installation, secretsDirectory, searchPath, logBytesMax });
    }
    case "kubernetes": {
      const namespace = required(config, "kubernetesNamespace");
      const connection = await connectionOf(config);
      return kubernetesRuntime({
        connection,
        namespace,
        installation,
        pods: podSettings(config),
        readNodes: config.kubernetesReadNodes,
        ...(choice.onRequest === undefined ? {} : { onRequest: choice.onRequest }),
        logBytesMax,
      });
    }
    case "opensandbox":
      return openSandboxRuntime({
        connection: {
          url: required(config, "openSandboxUrl"),
          apiKey: config.openSandboxApiKey,
          useServerProxy: config.openSandboxServerProxy,
        },
        installation,
        secretsDirectory: config.secretsDirectory,
        sandboxes: {
          image: config.openSandboxImage,
          egress: config.openSandboxEgress,
          lingerMs: toMilliseconds(config.openSandboxLinger),
        },
        logBytesMax,
      });
    default:
      return choice.kind satisfies never;
  }
}

/** What is wrong with it is said with the key that decides where it comes from. */
async function connectionOf(config: Config): Promise<KubernetesConnection> {
  const { kubernetesConfig: path, kubernetesContext: context } = config;
  const source: ConnectionSource =
    path === null
      ? { kind: "in-cluster" }
      : { kind: "kubeconfig", path, ...(context === null ? {} : { context }) };
  try {
    return (await connectionFrom(source)).connection;
  } catch (error) {
    if (!isHoldfastError(error, "invalid_configuration")) throw error;
    const key = configKeys.kubernetesConfig.name;
    const words = path === null ? `${key} is not set, and ${error.detail}` : `${key}: ${error.detail}`;
    throw new HoldfastError("invalid_configuration", words, { cause: error });
  }
}

function podSettings(config: Config): PodSettings {
  const { user, group } = config.kubernetesRunAs;
  return {
    image: config.kubernetesImage,
    runAsUser: user,
    runAsGroup: group,
    ...given("nodeSelector", config.kubernetesNodeSelector),
    ...given("tolerations", config.kubernetesTolerations),
    ...given("imagePullSecrets", config.kubernetesPullSecrets),
    ...given("runtimeClassName", config.kubernetesRuntimeClass),
    ...given("priorityClassName", config.kubernetesPriorityClass),
  };
}

const given = <Name extends string, Value>(name: Name, value: Value | null) =>
  value === null ? {} : ({ [name]: value } as { readonly [Key in Name]: Value }); // One computed key is typed as any string.
