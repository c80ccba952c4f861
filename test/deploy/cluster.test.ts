import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { test } from "node:test";
import { stringify } from "yaml";
import { realCluster } from "../support/kubernetes/real-cluster.ts";
import { deployFolder, documentsOf, type Manifest, manifestsOf, nameOf } from "../support/manifests.ts";

const real = realCluster();
const kubectl = spawnSync("kubectl", ["version", "--client"]).status === 0;
const skip = typeof real === "string" ? real : kubectl ? false : "there is no kubectl";

function run(words: readonly string[], input = ""): string {
  const { status, stdout, stderr } = spawnSync("kubectl", words, { input, encoding: "utf8" });
  assert.equal(status, 0, stderr);
  return stdout;
}

/** Into namespaces of our own: a dry run makes none, and nothing goes into one that is not there. */
function renamed(manifests: readonly Manifest[], suffix: string): Manifest[] {
  return JSON.parse(JSON.stringify(manifests), (key, value: unknown) =>
    key === "namespace" && typeof value === "string" && value.startsWith("holdfast") ? value + suffix : value,
  ) as Manifest[];
}

test("G13: the manifests are accepted whole by the API server of KUBECONFIG, in a dry run", { skip }, (t) => {
  const suffix = `-${randomBytes(4).toString("hex")}`;
  const overlays = ["overlays/example", "overlays/example/schema"];
  const rendered = overlays
    .flatMap((overlay) => documentsOf(run(["kustomize", join(deployFolder, "kubernetes", overlay)])))
    // An option is a component, which is rendered with an overlay alone: its objects are in files.
    .concat(manifestsOf("options/read-nodes"));
  const isNamespace = (manifest: Manifest) => manifest["kind"] === "Namespace";
  const namespaces = rendered.filter(isNamespace).map((manifest) => ({
    ...manifest,
    metadata: { ...Object(manifest["metadata"]), name: nameOf(manifest) + suffix },
  }));
  t.after(() => {
    for (const one of namespaces)
      run(["delete", "namespace", one.metadata.name, "--wait=false", "--ignore-not-found"]);
  });
  run(["create", "-f", "-"], namespaces.map((one) => stringify(one)).join("---\n"));
  const others = renamed(
    rendered.filter((manifest) => !isNamespace(manifest)),
    suffix,
  );
  const words = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
  const answer = run(words, others.map((one) => stringify(one)).join("---\n"));
  assert.equal(answer.trim().split("\n").length, others.length);
});
