import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import type { Observation, Runtime, SandboxRef } from "../../src/core/runtime.port.ts";
import { seconds } from "../../src/core/time.ts";
import { kubernetesRuntime } from "../../src/runtimes/kubernetes/kubernetes-runtime.ts";
import { Cluster } from "../support/kubernetes/cluster.ts";
import { nodeName } from "../support/kubernetes/kubelet.ts";
import { until } from "../support/until.ts";
import { podRequest, stopped, sweep } from "./runtime.ts";

const never = new AbortController().signal;

/** What a real node controller wrote on a node whose kubelet had been killed. */
interface NodeSighting {
  readonly taints: readonly object[] | null;
  readonly ready: readonly { readonly status: string }[];
}
const recorded = JSON.parse(
  readFileSync(new URL("../fixtures/kubernetes/node-lost-eviction.json", import.meta.url), "utf8"),
) as { readonly node: readonly NodeSighting[] };
const lost = recorded.node.findLast(({ taints, ready }) => taints !== null && ready[0]?.status === "Unknown");

describe("what a lost node says of itself", () => {
  let cluster: Cluster;
  let reads: Runtime;
  let leastRole: Runtime;
  let ref: SandboxRef;

  before(async () => {
    cluster = await Cluster.start();
    const options = { connection: cluster.connection(), namespace: "sandboxes", installation: "nodes" };
    reads = kubernetesRuntime({ ...options, readNodes: true });
    leastRole = kubernetesRuntime(options);
    const request = podRequest("hf-on-a-lost-node", "nodes", "sleep 1000");
    ref = { name: request.name, uid: (await reads.prepare(request, never)).uid };
    await reads.release(ref, request.epoch, seconds(60), never);
    await until("it runs", async () => {
      const seen = await reads.observe(ref, never);
      return seen.state === "running" && seen.startedAt !== null;
    });
    cluster.kubelet.disconnect();
  });
  after(async () => {
    cluster.kubelet.connect();
    await sweep(reads);
    await cluster.close();
  });

  const reasonOf = async (runtime: Runtime): Promise<string> => {
    const seen: Observation = await runtime.observe(ref, never);
    assert.equal(seen.state, "unproven");
    return "reason" in seen ? seen.reason : "";
  };
  const asked = () => cluster.requests.filter(({ path }) => path.startsWith("/api/v1/nodes/")).length;

  test("E8: by the least role no node is asked for, and the stop is unproven all the same", async () => {
    const silent = `its node ${nodeName} does not report: it may run on there`;
    assert.equal(await reasonOf(leastRole), silent);
    assert.equal(asked(), 0);
  });

  test("E8: with the right to read nodes the reason says what the node says, the same at each look", async () => {
    assert.ok(lost !== undefined);
    const node = { spec: { taints: lost.taints }, status: { conditions: lost.ready } };
    cluster.nodes = new Map([[nodeName, node]]);
    const reason = await reasonOf(reads);
    assert.match(
      reason,
      /; its node is Ready=Unknown \(NodeStatusUnknown\) since \S+Z, node.kubernetes.io\/\S+:No\w+/,
    );
    assert.equal(await reasonOf(reads), reason);
  });

  test("E8: a node that is gone, or may not be read, is said to be, and proves nothing", async () => {
    cluster.nodes = new Map();
    assert.match(await reasonOf(reads), new RegExp(`; there is no node object ${nodeName} any more$`));
    cluster.nodes = null;
    assert.match(await reasonOf(reads), /; its node can't be read: the role lacks `get` on nodes$/);
  });

  test("E8: once it reports again nobody asks for its node", async () => {
    cluster.kubelet.connect();
    await until("it runs again", async () => (await reads.observe(ref, never)).state === "running");
    const before = asked();
    await reads.stop(ref, 1n, never);
    await stopped(reads, ref);
    assert.equal(asked(), before);
  });
});
