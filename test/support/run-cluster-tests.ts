/**
 * `npm run test:cluster`: the suites that run against a real API server, as far as the environment gives one. What
 * it lacks is named in one line each; with nothing to run it ends with 2.
 */
import { spawnSync } from "node:child_process";
import { runChild } from "../../bin/launch/child.mjs";
import { realCluster } from "./kubernetes/real-cluster.ts";

const cluster = realCluster();
const { KUBEBUILDER_ASSETS } = process.env;
const lacks = {
  cluster: typeof cluster === "string" ? cluster : null,
  apiServer:
    KUBEBUILDER_ASSETS === undefined
      ? "KUBEBUILDER_ASSETS is not set: a folder with kube-apiserver and etcd"
      : null,
  kubectl: spawnSync("kubectl", ["version", "--client"]).status === 0 ? null : "there is no kubectl",
};

const suites = [
  {
    what: "runtime conformance",
    file: "test/conformance/kubernetes-runtime.test.ts",
    lack: lacks.cluster,
  },
  {
    what: "whole controllers",
    file: "test/conformance/kubernetes-controllers.test.ts",
    lack: lacks.cluster,
  },
  {
    what: "the manifests",
    file: "test/deploy/cluster.test.ts",
    lack: lacks.cluster ?? lacks.kubectl,
  },
  {
    what: "what an API server alone decides",
    file: "test/conformance/kubernetes-without-node.test.ts",
    lack: lacks.apiServer,
  },
] as const;

for (const { what, lack } of suites) if (lack !== null) console.error(`left out: ${what}: ${lack}`);
const files = suites.filter(({ lack }) => lack === null).map(({ file }) => file);
if (files.length === 0) {
  process.exitCode = 2;
} else {
  // The double's suites are in the same files, and `npm test` runs them.
  const flags = ["--test-name-pattern=of KUBECONFIG|of KUBEBUILDER_ASSETS", "--test-concurrency=1"];
  process.exitCode = await runChild(process.execPath, [
    "test/support/run-tests.ts",
    ...files,
    ...flags,
    ...process.argv.slice(2),
  ]);
}
