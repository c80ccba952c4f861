import assert from "node:assert/strict";
import { after, afterEach, before, describe, test } from "node:test";
import type { JobId } from "../../src/core/ids.ts";
import { openPodLab, type PodLab } from "../support/pod-lab.ts";
import { assertExactlyOnce, assertNothingLeft } from "../support/settled.ts";
import { until } from "../support/until.ts";

// A controller drives executions as pods while their world fails: what is recorded, said, kept and retried.

const namespace = "sandboxes";
const succeeded = { state: "succeeded", attempts: 1 };

describe("a controller of pods in a world that fails", () => {
  let lab: PodLab;
  const hooks: (() => void | Promise<void>)[] = [];
  before(async () => {
    lab = await openPodLab({ after: (hook) => void hooks.unshift(hook) });
  });
  afterEach(async () => {
    lab.mend();
    await lab.endAll();
    await assertNothingLeft(lab.arena);
  });
  after(async () => {
    for (const hook of hooks) await hook();
  });

  const unproven = (job: JobId) =>
    until("its stop is in question", async () => (await lab.sandbox(job))?.stop_unproven ?? null);
  const certain = (job: JobId) =>
    until("nothing is in question", async () => (await lab.sandbox(job))?.stop_unproven === null);
  const operations = async (job: JobId) => {
    const rows = await lab.arena.rows<{ operation: string }>(
      `select c.operation from holdfast.resource_changes c
       join holdfast.execution_attempts a on a.attempt_id = c.resource_id
       where a.job_id = $1 and c.operation like 'sandbox.%' order by c.position`,
      [job],
    );
    return rows.map(({ operation }) => operation.replace("sandbox.", ""));
  };
  const life = ["planned", "held", "released", "stopped", "removed"];

  test("E16 E22: an API server that restarts in the middle of each phase loses nothing and starts nothing twice", async () => {
    const { arena } = lab;
    const [one, two] = [lab.gate("one"), lab.gate("two")];
    const job = await lab.submit("restarts", [{ run: one.wait }, { run: two.wait }]);
    for (const [phase, gate] of [one, two].entries()) {
      await until("the phase runs", async () => (await arena.marks(job)).length === phase + 1);
      await arena.cluster.restart(300);
      await gate.open();
    }
    await lab.ended(job);
    await assertExactlyOnce(arena, job, succeeded);
    assert.deepEqual(await operations(job), [...life.slice(0, 4), ...life.slice(0, 4), "removed", "removed"]);
  });

  test("E6 E7 E22: storms of 429, 500, 503, resets and lost answers end in one start each", async () => {
    const { arena } = lab;
    let seen = 0;
    const every = (nth: number) => () => {
      seen += 1;
      return seen % nth === 0;
    };
    const faults = [
      { kind: "status", code: 429, retryAfter: 1 },
      { kind: "status", code: 500 },
      { kind: "status", code: 503 },
      { kind: "reset" },
      { kind: "lost" },
    ] as const;
    for (const [index, does] of faults.entries()) {
      arena.cluster.fail({ matches: every(3 + index), times: 6, does });
    }
    const jobs = await Promise.all(
      ["a", "b"].map((name) => lab.submit(`storm-${name}`, [{}, { run: "sleep 0.5" }])),
    );
    for (const job of jobs) {
      await lab.ended(job);
      await assertExactlyOnce(arena, job, succeeded);
    }
  });

  test("E6 E7 E14 E22: replies that are lost after create, release, delete and finalizer took effect change nothing", async () => {
    const { arena } = lab;
    for (const verb of ["create", "release", "delete", "finalize"]) {
      arena.cluster.fail({ matches: (request) => request.verb === verb, times: 1, does: { kind: "lost" } });
    }
    const job = await lab.submit("lost-replies", [{}]);
    await lab.ended(job);
    await assertExactlyOnce(arena, job, succeeded);
    assert.deepEqual(await operations(job), life);
  });

  test("E5 E22: a reply to a stop that is lost stops once", async () => {
    const { arena } = lab;
    arena.cluster.fail({ matches: ({ verb }) => verb === "stop", times: 1, does: { kind: "lost" } });
    const job = await lab.submit("lost-stop", [{ run: "sleep 300" }]);
    await lab.running(job);
    await arena.cancel(job);
    assert.equal((await lab.ended(job)).state, "cancelled");
    assert.deepEqual(await operations(job), [
      "planned",
      "held",
      "released",
      "stopping",
      "stopped",
      "removed",
    ]);
  });

  test("G12: lists that are behind and watch events that come late, twice, and out of date move nothing backwards", async () => {
    const { arena } = lab;
    arena.cluster.lists.stale = [];
    arena.cluster.watches.copies = 3;
    arena.cluster.watches.delayMs = 600;
    const job = await lab.submit("late-events", [{ run: "sleep 0.3" }, { run: "sleep 0.3" }]);
    await lab.ended(job);
    await assertExactlyOnce(arena, job, succeeded);
    assert.deepEqual(await operations(job), [...life.slice(0, 4), ...life.slice(0, 4), "removed", "removed"]);
  });

  test("E8 E22: a lost node leaves its pod in question and its slot taken; back, with the command still running, it goes on", async () => {
    const { arena } = lab;
    const gate = lab.gate("lost");
    const job = await lab.submit("lost-node", [{ run: gate.wait }]);
    await lab.running(job);
    arena.cluster.kubelet.disconnect();
    assert.match((await unproven(job)).reason, /its node double-node does not report: it may run on there/);
    assert.equal(await lab.slotsTaken(), 1);
    arena.cluster.kubelet.connect();
    await certain(job);
    const { id } = (await lab.sandbox(job)) ?? { id: "" };
    await assert.rejects(
      lab.operator.confirmStopped({ job, attempt: 1, sandbox: id }, { reason: "too late" }),
      /not in question/,
    );
    await gate.open();
    await lab.ended(job);
    await assertExactlyOnce(arena, job, succeeded);
  });

  test("E8 E10 E22: a job that is cancelled while its node is lost keeps its slot until the node is back", async () => {
    const { arena } = lab;
    const job = await lab.submit("cancelled-there", [{ run: "sleep 300" }]);
    await lab.running(job);
    arena.cluster.kubelet.disconnect();
    await unproven(job);
    const before = arena.cluster.requests.length;
    await arena.cancel(job);
    await until("it was asked to stop", () =>
      arena.cluster.requests.slice(before).some(({ verb, status }) => verb === "stop" && status === 200),
    );
    assert.equal((await lab.client.getJob(job)).state, "running");
    assert.equal(await lab.slotsTaken(), 1);
    arena.cluster.kubelet.connect();
    assert.equal((await lab.ended(job)).state, "cancelled");
    assert.equal((await lab.sandbox(job))?.outcome, "stopped");
  });

  test("E8 E22: what ended by itself on a lost node is a success when the node is back", async () => {
    const { arena } = lab;
    const gate = lab.gate("ended-there");
    const job = await lab.submit("ended-there", [{ run: gate.wait }]);
    await lab.running(job);
    arena.cluster.kubelet.disconnect();
    await unproven(job);
    await gate.open();
    await until("its container has ended", () => arena.cluster.kubelet.running === 0);
    assert.equal((await lab.client.getJob(job)).state, "running", "nobody knows yet");
    arena.cluster.kubelet.connect();
    await lab.ended(job);
    await assertExactlyOnce(arena, job, succeeded);
  });

  test("E8 E22: a pod that somebody deletes by force on a lost node stays in question until the node is back, then is retried", async () => {
    const { arena } = lab;
    const job = await lab.submit("forced", [{ run: '[ "$HOLDFAST_ATTEMPT" = 2 ] || sleep 300' }], {
      attempts: 2,
    });
    const { metadata } = await lab.running(job);
    arena.cluster.kubelet.disconnect();
    arena.cluster.store.delete(namespace, metadata.name, { graceSeconds: 0 });
    arena.cluster.store.report(metadata.uid, ({ status }) => {
      status.phase = "Failed";
    });
    await unproven(job);
    assert.equal(await lab.slotsTaken(), 1);
    arena.cluster.kubelet.connect();
    const { state, attempts, message } = await lab.ended(job);
    assert.deepEqual(
      [state, attempts],
      [
        "succeeded",
        [
          ["failed", "evicted"],
          ["succeeded", null],
        ],
      ],
    );
    assert.match(message, /Its pod was deleted by somebody else/);
  });

  test("E8 E10 E22: a pod whose finalizer somebody took keeps its slot until an operator's word", async () => {
    const { arena } = lab;
    const job = await lab.submit("vanished", [{ run: "sleep 300" }]);
    const { metadata } = await lab.running(job);
    arena.cluster.kubelet.disconnect();
    arena.cluster.store.delete(namespace, metadata.name, { graceSeconds: 0 });
    arena.cluster.store.patch(namespace, metadata.name, { metadata: { finalizers: null } }, "merge");
    assert.match((await unproven(job)).reason, /no such object, which proves nothing/);
    assert.equal(await lab.slotsTaken(), 1);
    assert.equal(arena.cluster.kubelet.running, 1, "it does run on there");
    const { id } = (await lab.sandbox(job)) ?? { id: "" };
    arena.cluster.kubelet.connect();
    await until("the node has ended what nobody owns", () => arena.cluster.kubelet.running === 0);
    await lab.operator.confirmStopped({ job, attempt: 1, sandbox: id }, { reason: "the node was scrapped" });
    const { attempts, message } = await lab.ended(job);
    assert.deepEqual(attempts, [["failed", "sandbox_lost"]]);
    assert.match(message, /An operator declared it stopped: the node was scrapped/);
  });

  test("E14 E22: an operator's word about a lost node does not spare its pod: back, it is stopped and removed", async () => {
    const { arena } = lab;
    const job = await lab.submit("overridden", [{ run: "sleep 300" }]);
    await lab.running(job);
    arena.cluster.kubelet.disconnect();
    await unproven(job);
    const { id } = (await lab.sandbox(job)) ?? { id: "" };
    await lab.operator.confirmStopped({ job, attempt: 1, sandbox: id }, { reason: "it is switched off" });
    await until("the slot is back", async () => (await lab.slotsTaken()) === 0);
    arena.cluster.kubelet.connect();
    await lab.ended(job);
  });

  test("E14 E22: a slow delete, and a finalizer of somebody else, hold up nothing but the object itself", async () => {
    const { arena } = lab;
    const gate = lab.gate("slow");
    const job = await lab.submit("slow-delete", [{ run: gate.wait }]);
    const { metadata } = await lab.running(job);
    const add = [{ op: "add", path: "/metadata/finalizers/-", value: "example.com/backup" }];
    arena.cluster.store.patch(namespace, metadata.name, add, "json");
    arena.cluster.fail({
      matches: ({ verb }) => verb === "delete",
      times: 1,
      does: { kind: "slow", ms: 1_500 },
    });
    await gate.open();
    await lab.ended(job);
    await assertExactlyOnce(arena, job, succeeded);
    const left = arena.pods();
    assert.deepEqual(
      left.map((pod) => pod.metadata.finalizers),
      [["example.com/backup"]],
    );
    arena.cluster.store.patch(namespace, metadata.name, { metadata: { finalizers: null } }, "merge");
  });

  const evictions = [
    {
      how: "by its node",
      words: /It was evicted by its node: The node was low on resource: memory/,
      evict: (uid: string) => lab.arena.cluster.kubelet.evict(uid, "The node was low on resource: memory."),
    },
    {
      how: "through the API",
      words: /It was evicted \(EvictionByEvictionAPI\)/,
      evict: (uid: string) => {
        const { store } = lab.arena.cluster;
        const pod = store.report(uid, ({ status }) => {
          status.conditions.push({
            type: "DisruptionTarget",
            status: "True",
            lastProbeTime: null,
            lastTransitionTime: new Date().toISOString(),
            reason: "EvictionByEvictionAPI",
            message: "Eviction API: evicting",
          });
        });
        store.delete(namespace, pod?.metadata.name ?? "", { uid });
      },
    },
  ] as const;
  for (const { how, words, evict } of evictions) {
    test(`E12 E22: a pod that is evicted ${how} says so, and its job is tried once more`, async () => {
      const job = await lab.submit("evicted", [{ run: '[ "$HOLDFAST_ATTEMPT" = 2 ] || sleep 300' }], {
        attempts: 2,
      });
      const { metadata } = await lab.running(job);
      evict(metadata.uid);
      const { state, attempts, message } = await lab.ended(job);
      assert.deepEqual(
        [state, attempts],
        [
          "succeeded",
          [
            ["failed", "evicted"],
            ["succeeded", null],
          ],
        ],
      );
      assert.match(message, words);
    });
  }

  test("E10 E22: a command that is killed for its memory says so", async () => {
    const job = await lab.submit("oom", [{ run: "sleep 300" }]);
    const { metadata } = await lab.running(job);
    lab.arena.cluster.kubelet.killForMemory(metadata.uid);
    const { attempts, message } = await lab.ended(job);
    assert.deepEqual(attempts, [["failed", "out_of_memory"]]);
    assert.match(message, /more memory than its limit/);
  });

  test("E10 E22: an image that no registry has is given up after a while, by its name", async () => {
    const { cluster } = lab.arena;
    cluster.kubelet.missingImages.add("registry.test/shell:1");
    const job = await lab.submit("no-image", [{}]);
    await until("its image is wanted", () => JSON.stringify(lab.arena.pods()).includes("ImagePullBackOff"));
    assert.equal((await lab.client.getJob(job)).state, "running", "a registry may come back");
    cluster.clockAheadMs = 150_000;
    const { attempts, message } = await lab.ended(job);
    assert.deepEqual(attempts, [["failed", "start_failed"]]);
    assert.match(message, /ImagePullBackOff: Back-off pulling image "registry\.test\/shell:1"/);
  });

  test("E4 E22: a pod that no node can take ends at the deadline and says why no node could", async () => {
    lab.arena.cluster.kubelet.schedules = false;
    const job = await lab.submit("unschedulable", [{}], { deadline: "6s" });
    const { attempts, message } = await lab.ended(job);
    assert.deepEqual(attempts, [["failed", "deadline_exceeded"]]);
    assert.match(message, /no node could take it: 0\/1 nodes are available/i);
    assert.deepEqual(await lab.arena.marks(job), []);
  });

  test("E22: a full quota makes a job wait, and it starts as soon as there is room", async () => {
    const { arena } = lab;
    arena.cluster.store.quota = 0;
    const job = await lab.submit("quota", [{}]);
    await until("it was refused", () => arena.cluster.requests.some(({ status }) => status === 403));
    assert.equal((await lab.sandbox(job))?.state, "planned");
    arena.cluster.store.quota = null;
    await lab.ended(job);
    await assertExactlyOnce(arena, job, succeeded);
  });

  test("E7 E22: a pod whose creation was not answered is found though its quota is full since", async () => {
    const { arena } = lab;
    arena.cluster.store.quota = 1;
    arena.cluster.fail({ matches: ({ verb }) => verb === "create", times: 1, does: { kind: "lost" } });
    const job = await lab.submit("quota-lost", [{}]);
    await lab.ended(job);
    await assertExactlyOnce(arena, job, succeeded);
    assert.deepEqual(await operations(job), life);
  });

  test("E5 E22: a pod that no node can take is cancelled at once", async () => {
    lab.arena.cluster.kubelet.schedules = false;
    const job = await lab.submit("unschedulable-cancelled", [{}]);
    await until("no node can take it", () => JSON.stringify(lab.arena.pods()).includes("Unschedulable"));
    await lab.arena.cancel(job);
    assert.equal((await lab.ended(job)).state, "cancelled");
    assert.deepEqual(await lab.arena.marks(job), []);
  });

  test("E4 E22: a quota that stays full until the deadline is named", async () => {
    lab.arena.cluster.store.quota = 0;
    const job = await lab.submit("quota-full", [{}], { deadline: "5s" });
    const { attempts, message } = await lab.ended(job);
    assert.deepEqual(attempts, [["failed", "deadline_exceeded"]]);
    assert.match(message, /exceeded quota/);
  });

  test("E10 E22: a pod that the namespace's security profile forbids fails at once, with the profile's words", async () => {
    const words =
      'pods "x" is forbidden: violates PodSecurity "restricted:latest": unrestricted capabilities (container "main" must set securityContext.capabilities.drop=["ALL"])';
    lab.arena.cluster.fail({
      matches: ({ verb }) => verb === "create",
      times: 100,
      does: { kind: "status", code: 403, message: words },
    });
    const job = await lab.submit("forbidden", [{}]);
    const { attempts, message } = await lab.ended(job);
    assert.deepEqual(attempts, [["failed", "start_failed"]]);
    assert.match(message, /violates PodSecurity "restricted:latest"/);
  });

  test("E7 E22: a pod whose image somebody changed while it was held never runs, and says so", async () => {
    const { cluster } = lab.arena;
    const held = cluster.held.hold("received", 1, ({ verb }) => verb === "release");
    const job = await lab.submit("changed", [{}]);
    const { path } = await held.reached;
    const image = [{ op: "replace", path: "/spec/containers/0/image", value: "registry.test/other:1" }];
    cluster.store.patch(namespace, path.split("/").at(-1) ?? "", image, "json");
    const before = cluster.requests.length;
    assert.equal(await held.go(), 422);
    const { attempts, message } = await lab.ended(job);
    assert.deepEqual(attempts, [["failed", "start_failed"]]);
    assert.match(message, /changed by somebody else while it was held/);
    assert.deepEqual(await lab.arena.marks(job), []);
    assert.ok(cluster.requests.length - before < 40, "it does not ask again and again");
  });
});
