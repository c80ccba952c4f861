import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { kubernetesRuntime } from "../../src/runtimes/kubernetes/kubernetes-runtime.ts";
import { Cluster } from "../support/kubernetes/cluster.ts";
import { realCluster } from "../support/kubernetes/real-cluster.ts";
import { runtimeConformance } from "./runtime.ts";

const logBytesMax = 12_000_000;
const shell = (script: string) => ["/bin/sh", "-c", script];

runtimeConformance(
  "kubernetes, on a double of its API server",
  async () => {
    const cluster = await Cluster.start();
    const options = {
      connection: cluster.connection(),
      namespace: "sandboxes",
      installation: "conformance",
      pods: { image: "registry.test/shell:1" },
      logBytesMax,
    };
    return {
      runtime: kubernetesRuntime(options),
      other: kubernetesRuntime(options),
      installation: options.installation,
      close: () => cluster.close(),
    };
  },
  { shell, image: null, exactLogs: false, logBytesMax },
);

const real = realCluster();

if (typeof real === "string") {
  test("runtime: kubernetes, on the cluster of KUBECONFIG", { skip: real });
} else {
  runtimeConformance(
    "kubernetes, on the cluster of KUBECONFIG",
    async () => {
      const { namespace } = real;
      const installation = `conformance-${randomUUID()}`;
      const options = { connection: await real.connect(), namespace, installation, logBytesMax };
      return {
        runtime: kubernetesRuntime(options),
        other: kubernetesRuntime(options),
        installation,
        close: () => Promise.resolve(),
      };
    },
    { shell, image: real.image, exactLogs: false, logBytesMax },
  );
}
