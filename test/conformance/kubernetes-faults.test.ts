import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, afterEach, before, describe, test } from "node:test";
import { brandId, type SandboxId, type TenantId } from "../../src/core/ids.ts";
import type { LogRecord, PrepareRequest, Runtime, SandboxRef } from "../../src/core/runtime.port.ts";
import { microseconds, seconds } from "../../src/core/time.ts";
import { isApiError } from "../../src/runtimes/kubernetes/api-error.ts";
import { kubernetesRuntime } from "../../src/runtimes/kubernetes/kubernetes-runtime.ts";
import { finalizer } from "../../src/runtimes/kubernetes/pod-marks.ts";
import { Cluster } from "../support/kubernetes/cluster.ts";
import type { PodObject } from "../support/kubernetes/pod-object.ts";
import { until } from "../support/until.ts";
import { bytesOf, collect, digestOf, readLogs, refused, stopped, sweep } from "./runtime.ts";

const never = new AbortController().signal;
const minute = seconds(60);
const namespace = "faults";
const installation = "faults";

describe("the Kubernetes runtime when the world fails", () => {
  let cluster: Cluster;
  let runtime: Runtime;
  let serial = 0;

  before(async () => {
    cluster = await Cluster.start();
    runtime = kubernetesRuntime({
      connection: cluster.connection(),
      namespace,
      installation,
      pods: { image: "registry.test/shell:1" },
      limits: { firstDelayMs: 5 },
    });
  });
  afterEach(() => {
    cluster.heal();
    cluster.store.quota = null;
    cluster.kubelet.schedules = true;
    cluster.kubelet.startsContainers = true;
  });
  after(async () => {
    await sweep(runtime);
    await cluster.close();
  });

  const requestOf = (script: string): PrepareRequest => {
    const spec = {
      command: ["/bin/sh", "-c", script],
      env: {},
      secrets: {},
      image: null,
      grace: seconds(1),
      limits: { cpuMillicores: 100, memoryBytes: 64 << 20, diskBytes: 64 << 20 },
    };
    return {
      name: `hf-fault-${(serial += 1)}`,
      installation,
      tenant: brandId<TenantId>("acme"),
      sandbox: brandId<SandboxId>(randomUUID()),
      spec,
      specDigest: digestOf(spec),
      epoch: 1n,
      privateEnv: {},
      holdLimit: minute,
    };
  };
  const prepare = async (request: PrepareRequest): Promise<SandboxRef> => ({
    name: request.name,
    uid: (await runtime.prepare(request, never)).uid,
  });
  const held = (script: string) => prepare(requestOf(script));
  const released = async (script: string): Promise<SandboxRef> => {
    const ref = await held(script);
    await runtime.release(ref, 1n, minute, never);
    return ref;
  };
  const running = async (script: string): Promise<SandboxRef> => {
    const ref = await released(`echo ready; ${script}`);
    await until("it is ready", async () => bytesOf(await readLogs(runtime, ref)).includes("ready"));
    return ref;
  };
  const stateOf = async (ref: SandboxRef) => (await runtime.observe(ref, never)).state;
  const pod = ({ name }: SandboxRef): PodObject => cluster.store.get(namespace, name);
  const loseAnswer = (method: string, path = "") =>
    cluster.fail({
      matches: (request) => request.method === method && request.path.includes(path),
      times: 1,
      does: { kind: "lost" },
    });

  test("E7: a create whose answer was lost made the one object that is adopted", async () => {
    loseAnswer("POST");
    const ref = await held("exit 0");
    assert.equal(await runtime.find(ref.name, never), ref.uid);
    assert.equal(await stateOf(ref), "held");
  });

  test("E6: a release whose answer was lost released once", async () => {
    const ref = await held("echo ran");
    loseAnswer("PATCH");
    await runtime.release(ref, 1n, minute, never);
    assert.equal((await stopped(runtime, ref)).outcome.kind, "exited");
    assert.equal(bytesOf(await readLogs(runtime, ref)).toString(), "ran\n");
  });

  test("E14: a removal goes on after lost answers, and the finalizer goes last", async () => {
    const ref = await released("exit 0");
    await stopped(runtime, ref);
    const patches = () => cluster.requests.findLastIndex(({ method }) => method === "PATCH");
    const deletes = () => cluster.requests.findLastIndex(({ method }) => method === "DELETE");
    assert.deepEqual(pod(ref).metadata.finalizers, [finalizer]);
    loseAnswer("DELETE");
    loseAnswer("PATCH");
    await runtime.remove(ref, never);
    assert.ok(patches() > deletes());
    assert.deepEqual(await runtime.observe(ref, never), { state: "absent" });
  });

  test("a full quota is no verdict on the sandbox: it is tried again", async () => {
    cluster.store.quota = 0;
    await assert.rejects(held("exit 0"), (error) => isApiError(error, 403));
  });

  test("E7: what was changed while it was held is not released", async () => {
    const ref = await held("echo ran");
    const image = [{ op: "replace", path: "/spec/containers/0/image", value: "registry.test/other:1" }];
    cluster.store.patch(namespace, ref.name, image, "json");
    await assert.rejects(runtime.release(ref, 1n, minute, never), refused("invalid"));
    assert.equal(await stateOf(ref), "held");
  });

  test("E8: an API server that can't be asked leaves it unproven", async () => {
    const ref = await held("exit 0");
    cluster.fail({ matches: () => true, times: 100, does: { kind: "reset" } });
    assert.equal(await stateOf(ref), "unproven");
  });

  test("E8: a lost node keeps it unproven; its return carries out the stop and brings the proof", async () => {
    const ref = await running("sleep 1000");
    cluster.kubelet.disconnect();
    assert.equal(await stateOf(ref), "unproven");
    await runtime.stop(ref, 1n, never);
    assert.equal(await stateOf(ref), "unproven");
    await assert.rejects(runtime.remove(ref, never), refused("invalid"));
    cluster.kubelet.connect();
    assert.equal((await stopped(runtime, ref)).outcome.kind, "stopped");
  });

  test("E8: a forced delete of somebody else is no proof, and leaves the object to be asked", async () => {
    const ref = await running("sleep 1000");
    cluster.kubelet.disconnect();
    cluster.store.delete(namespace, ref.name, { graceSeconds: 0 });
    cluster.store.report(ref.uid, ({ status }) => {
      status.phase = "Failed";
    });
    assert.notEqual(await stateOf(ref), "stopped");
    cluster.kubelet.connect();
    await stopped(runtime, ref);
  });

  test("E10: what somebody else deleted while it ran was evicted, and its lost output says so", async () => {
    const ref = await running("trap 'exit 3' TERM; while :; do sleep 0.05; done");
    cluster.store.delete(namespace, ref.name, { uid: ref.uid });
    const { outcome } = await stopped(runtime, ref);
    assert.deepEqual([outcome.kind, outcome.exitCode], ["evicted", 3]);
    await until("its log is lost", () => cluster.kubelet.container(ref.uid)?.log.lost);
    assert.match(bytesOf(await readLogs(runtime, ref)).toString(), /\[holdfast: the log is gone/);
  });

  test("E8: what no node could take is stopped by deleting it, and no node takes it afterwards", async () => {
    cluster.kubelet.schedules = false;
    const ref = await released("echo ran");
    assert.equal(await stateOf(ref), "running");
    await runtime.stop(ref, 1n, never);
    const { outcome } = await stopped(runtime, ref);
    assert.equal(outcome.kind, "stopped");
    cluster.kubelet.schedules = true;
    cluster.kubelet.syncAll();
    assert.equal(pod(ref).spec.nodeName, undefined);
  });

  test("E4: a deadline that passes before a node takes it ends it", async () => {
    cluster.kubelet.schedules = false;
    const ref = await held("echo ran");
    await runtime.release(ref, 1n, microseconds(1n), never);
    assert.equal((await stopped(runtime, ref)).outcome.kind, "deadline");
  });

  test("E8: a stop before any container was made ends without one", async () => {
    cluster.kubelet.startsContainers = false;
    const ref = await released("echo ran");
    await until("a node has it", () => pod(ref).status.startTime);
    await runtime.stop(ref, 1n, never);
    assert.equal((await stopped(runtime, ref)).outcome.kind, "stopped");
    assert.deepEqual(await readLogs(runtime, ref), []);
  });

  test("E19: a follower loses and repeats nothing when the API server is killed", async () => {
    const ref = await running("for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.1; done");
    const seen: LogRecord[] = [];
    for await (const record of runtime.logs(ref, { cursor: null, follow: true }, never)) {
      seen.push(record);
      if (seen.length === 3) await cluster.restart();
    }
    const lines = [1, 2, 3, 4, 5, 6, 7, 8].map((i) => `line ${i}\n`).join("");
    assert.equal(bytesOf(seen).toString(), `ready\n${lines}`);
  });

  test("E19: lines that a rotation took away are marked", async () => {
    const ref = await running("read line; echo never");
    await stopped(runtime, ref);
    const [first] = await readLogs(runtime, ref);
    assert.ok(first !== undefined);
    cluster.kubelet.container(ref.uid)?.log.rotate();
    const rest = await readLogs(runtime, ref, first.cursor);
    assert.match(bytesOf(rest).toString(), /\[holdfast: output may be missing here/);
  });

  test("E19: a cursor of another sandbox is refused", async () => {
    const [one, two] = [await released("echo 1"), await released("echo 2")];
    await stopped(runtime, one);
    await stopped(runtime, two);
    const [record] = await readLogs(runtime, one);
    assert.ok(record !== undefined);
    await assert.rejects(readLogs(runtime, two, record.cursor), refused("invalid"));
  });

  test("E21: an object of another installation is neither listed nor adopted", async () => {
    const request = requestOf("exit 0");
    await prepare(request);
    const stranger = kubernetesRuntime({
      connection: cluster.connection(),
      namespace,
      installation: "another",
      pods: { image: "registry.test/shell:1" },
    });
    assert.deepEqual(await collect(stranger.list(never)), []);
    await assert.rejects(
      stranger.prepare({ ...request, installation: "another" }, never),
      refused("name_taken"),
    );
  });

  test("E21: a list that is behind names what is gone, and nothing else is touched by it", async () => {
    const ref = await released("exit 0");
    await stopped(runtime, ref);
    cluster.lists.stale = cluster.store.all(namespace);
    await runtime.remove(ref, never);
    const listed = (await collect(runtime.list(never))).find(({ uid }) => uid === ref.uid);
    assert.ok(listed !== undefined);
    await assert.rejects(runtime.stop(listed, listed.epoch, never), refused("gone"));
    await runtime.remove(listed, never);
    cluster.lists.stale = null;
  });

  test("however many wait for changes, one watch serves them", async () => {
    const refs = await Promise.all([1, 2, 3, 4].map(() => running("sleep 1000")));
    await until("the watches of before have ended", () => cluster.openWatches === 0);
    cluster.requests.length = 0;
    const waits = refs.map(async (ref) => {
      while ((await runtime.observe(ref, never)).state !== "stopped") await runtime.changed(ref, never);
    });
    await until("all wait", () => cluster.openWatches > 0);
    for (const ref of refs) await runtime.stop(ref, 1n, never);
    await Promise.all(waits);
    assert.equal(cluster.requests.filter(({ query }) => query.has("watch")).length, 1);
  });

  test("G13: the pod has no token, no service links, no rights, and no more than its limits", async () => {
    const { spec } = pod(await held("exit 0"));
    assert.partialDeepStrictEqual(spec, {
      restartPolicy: "Never",
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      securityContext: { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
    });
    assert.partialDeepStrictEqual(spec.containers[0], {
      securityContext: {
        allowPrivilegeEscalation: false,
        privileged: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ["ALL"] },
      },
      resources: { limits: { cpu: "100m", memory: "67108864", "ephemeral-storage": "67108864" } },
    });
  });
});
