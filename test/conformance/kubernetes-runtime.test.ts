import { kubernetesRuntime } from "../../src/runtimes/kubernetes/kubernetes-runtime.ts";
import { Cluster } from "../support/kubernetes/cluster.ts";
import { runtimeConformance } from "./runtime.ts";

const logBytesMax = 12_000_000;

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
  { shell: (script) => ["/bin/sh", "-c", script], image: null, exactLogs: false, logBytesMax },
);
