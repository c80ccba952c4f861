import type { KubernetesConnection } from "../../../src/runtimes/kubernetes/connection.ts";
import { connectionFrom } from "../../../src/runtimes/kubernetes/kube-config.ts";

/** A cluster of one's own, with an image that has `sh`: only then do suites run on more than the double. */
export interface RealCluster {
  readonly kubeconfig: string;
  readonly image: string;
  readonly namespace: string;
  readonly connect: () => Promise<KubernetesConnection>;
}

/** What the environment gives, or what it lacks, by name. */
export function realCluster(environment: NodeJS.ProcessEnv = process.env): RealCluster | string {
  const { KUBECONFIG, HOLDFAST_TEST_IMAGE, HOLDFAST_TEST_NAMESPACE = "default" } = environment;
  if (KUBECONFIG === undefined) return "KUBECONFIG is not set: a cluster's kubeconfig";
  if (HOLDFAST_TEST_IMAGE === undefined) return "HOLDFAST_TEST_IMAGE is not set: an image that has sh";
  return {
    kubeconfig: KUBECONFIG,
    image: HOLDFAST_TEST_IMAGE,
    namespace: HOLDFAST_TEST_NAMESPACE,
    connect: async () => (await connectionFrom({ kind: "kubeconfig", path: KUBECONFIG })).connection,
  };
}
