import { randomUUID } from "node:crypto";
import { test } from "node:test";
import type { KubernetesConnection } from "../../src/runtimes/kubernetes/connection.ts";
import { kubernetesRuntime } from "../../src/runtimes/kubernetes/kubernetes-runtime.ts";
import { startApiServer } from "../support/kubernetes/api-server.ts";
import { Cluster } from "../support/kubernetes/cluster.ts";
import { withoutNodeConformance } from "./without-node.ts";

function underTest(connection: KubernetesConnection, close: () => Promise<void>) {
  const installation = `nodeless-${randomUUID()}`;
  const options = { connection, namespace: "default", installation };
  return { runtime: kubernetesRuntime(options), other: kubernetesRuntime(options), installation, close };
}

withoutNodeConformance("a double of its API server", async () => {
  const cluster = await Cluster.start();
  cluster.kubelet.schedules = false;
  return underTest(cluster.connection(), () => cluster.close());
});

const { KUBEBUILDER_ASSETS } = process.env;

if (KUBEBUILDER_ASSETS === undefined) {
  test("runtime without a node: the API server of KUBEBUILDER_ASSETS", {
    skip: "KUBEBUILDER_ASSETS is not set: a folder with kube-apiserver and etcd",
  });
} else {
  withoutNodeConformance("the API server of KUBEBUILDER_ASSETS", async () => {
    const server = await startApiServer(KUBEBUILDER_ASSETS);
    return underTest(server.connection, () => server.close());
  });
}
