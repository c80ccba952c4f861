import { randomUUID } from "node:crypto";
import { connectionFrom } from "../../src/runtimes/kubernetes/kube-config.ts";
import { kubernetesRuntime } from "../../src/runtimes/kubernetes/kubernetes-runtime.ts";
import { Cluster } from "../support/kubernetes/cluster.ts";
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

/** A cluster of one's own, with an image that has `sh`: only then is it more than the double. */
const { KUBECONFIG, HOLDFAST_TEST_IMAGE, HOLDFAST_TEST_NAMESPACE = "default" } = process.env;

if (KUBECONFIG !== undefined && HOLDFAST_TEST_IMAGE !== undefined) {
  runtimeConformance(
    "kubernetes, on the cluster of KUBECONFIG",
    async () => {
      const { connection } = await connectionFrom({ kind: "kubeconfig", path: KUBECONFIG });
      const installation = `conformance-${randomUUID()}`;
      const options = { connection, namespace: HOLDFAST_TEST_NAMESPACE, installation, logBytesMax };
      return {
        runtime: kubernetesRuntime(options),
        other: kubernetesRuntime(options),
        installation,
        close: () => Promise.resolve(),
      };
    },
    { shell, image: HOLDFAST_TEST_IMAGE, exactLogs: false, logBytesMax },
  );
}
