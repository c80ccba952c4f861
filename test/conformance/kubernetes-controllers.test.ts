import { test } from "node:test";
import { kubernetesRuntime } from "../../src/runtimes/kubernetes/kubernetes-runtime.ts";
import { Cluster } from "../support/kubernetes/cluster.ts";
import { realCluster } from "../support/kubernetes/real-cluster.ts";
import { wholeController } from "./whole-controller.ts";

wholeController("on the double", async () => {
  const cluster = await Cluster.start();
  const pods = { image: "registry.test/shell:1" };
  const connection = cluster.connection();
  return {
    runtime: (installation) => kubernetesRuntime({ connection, namespace: "sandboxes", installation, pods }),
    close: () => cluster.close(),
  };
});

const real = realCluster();

if (typeof real === "string") {
  test("controllers with pods: on the cluster of KUBECONFIG", { skip: real });
} else {
  wholeController("on the cluster of KUBECONFIG", async () => {
    const { namespace, image } = real;
    const connection = await real.connect();
    return {
      runtime: (installation) => kubernetesRuntime({ connection, namespace, installation, pods: { image } }),
      close: () => Promise.resolve(),
    };
  });
}
