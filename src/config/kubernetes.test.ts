import assert from "node:assert/strict";
import { test } from "node:test";
import { parseConfig } from "../config.ts";

const read = (name: string, text: string) => parseConfig({ [`HOLDFAST_KUBERNETES_${name}`]: text });

test("nodes are chosen by labels, and their taints tolerated as kubectl writes them", () => {
  assert.deepEqual(read("NODE_SELECTOR", "pool=builds,example.com/disk=").kubernetesNodeSelector, {
    pool: "builds",
    "example.com/disk": "",
  });
  assert.deepEqual(
    read("TOLERATIONS", "dedicated=builds:NoSchedule, spot:NoExecute,gpu").kubernetesTolerations,
    [
      { key: "dedicated", operator: "Equal", value: "builds", effect: "NoSchedule" },
      { key: "spot", operator: "Exists", effect: "NoExecute" },
      { key: "gpu", operator: "Exists" },
    ],
  );
  assert.deepEqual(read("IMAGE_PULL_SECRETS", "one,two.example").kubernetesPullSecrets, [
    "one",
    "two.example",
  ]);
  assert.deepEqual(read("RUN_AS", "1000:0").kubernetesRunAs, { user: 1000, group: 0 });
});

test("G13: what an API server would refuse is refused at the start, by its key", () => {
  for (const [name, text, words] of [
    ["NAMESPACE", "Sandboxes", "must be 1 to 63 lower-case letters"],
    ["IMAGE", "an image", "must be an image such as"],
    ["NODE_SELECTOR", "pool", 'must be labels of nodes, .* found "pool"'],
    ["TOLERATIONS", "spot:Never", 'must be taints, .* found "spot:Never"'],
    ["IMAGE_PULL_SECRETS", "one,,two", "must be 1 to 253 lower-case letters"],
    ["RUNTIME_CLASS", "Strong", "must be 1 to 253 lower-case letters"],
    ["RUN_AS", "0:0", "must be USER:GROUP in numbers, the user not 0"],
    ["READ_NODES", "yes", "must be one of true, false"],
  ] as const) {
    assert.throws(() => read(name, text), new RegExp(`HOLDFAST_KUBERNETES_${name} ${words}`));
  }
});
