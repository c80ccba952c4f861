import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Cluster } from "../support/kubernetes/cluster.ts";
import type { PodStore } from "../support/kubernetes/pod-store.ts";
import { comparable, Replay } from "../support/kubernetes/replay.ts";
import { type Exchange, readTrace } from "../support/kubernetes/trace.ts";

/** A pod that stood before the recording began. */
const standing = (name: string) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: {
    name,
    labels: { "holdfast.dev/installation": "lab" },
    finalizers: ["holdfast.dev/proof-of-stop"],
  },
  spec: {
    restartPolicy: "Never",
    terminationGracePeriodSeconds: 5,
    nodeSelector: { never: "x" },
    containers: [{ name: "main", image: "localhost/lab/busybox:1", command: ["sh", "-c", "sleep 600"] }],
    schedulingGates: [{ name: "holdfast.dev/held" }],
  },
});

function make(store: PodStore, namespace: string, name: string): void {
  const pod = standing(name);
  const labels = { ...pod.metadata.labels, ...(name.startsWith("hl-") ? { grp: "l" } : {}) };
  store.create(namespace, { ...pod, metadata: { ...pod.metadata, labels } }, { strict: true });
}

interface Recording {
  readonly trace: string;
  readonly namespace: string;
  /** Names of the pods that stood. */
  readonly pods?: readonly string[];
  /** What the double leaves out, by the note or path of the exchange, with the reason. */
  readonly without?: readonly RegExp[];
  /** What was done, unrecorded, before the exchange with this note. */
  readonly unrecorded?: { readonly before: RegExp; readonly does: (store: PodStore) => void };
  /** The recording was faster than the scheduler. */
  readonly withoutScheduler?: boolean;
}

const dryRun = /dryRun/;

const recordings: readonly Recording[] = [
  {
    trace: "create",
    namespace: "facts-api",
    // Nothing that we send: namespaces that are missing, the wording of a parser, names made by the server.
    without: [dryRun, /namespace does not exist/, /malformed JSON/, /generateName/, /unknown field, Warn/],
  },
  {
    trace: "delete-held",
    namespace: "facts-api",
    pods: ["hd-a", "hd-b", "hd-c"],
    without: [dryRun, /deletecollection/, /watch/],
  },
  {
    trace: "patch-held",
    namespace: "facts-api",
    pods: ["hp-a"],
    // The message of a changed command holds a printed difference.
    without: [dryRun, /command changed/],
  },
  {
    trace: "epoch-in-annotation",
    namespace: "facts-misc",
    unrecorded: { before: /same on a deleting pod/, does: (store) => store.delete("facts-misc", "ep", {}) },
    withoutScheduler: true,
  },
  {
    trace: "list",
    namespace: "facts-api",
    pods: ["hl-0", "hl-1", "hl-2", "hl-3", "hl-4"],
    unrecorded: { before: /hl-9 was created meanwhile/, does: (store) => make(store, "facts-api", "hl-9") },
    // Exact lists of the past, and selectors that nobody sends.
    without: [/Exact/, /bad selector/, /garbage/, /nodeName/],
  },
];

for (const recording of recordings) {
  describe(`double of the API server: ${recording.trace}`, () => {
    const exchanges = (readTrace(recording.trace).exchanges ?? []).filter(
      (exchange) => !leftOut(recording, exchange),
    );
    let cluster: Cluster;
    let replay: Replay;

    before(async () => {
      cluster = await Cluster.start();
      cluster.kubelet.schedules = false;
      if (recording.withoutScheduler === true) await cluster.kubelet.close();
      for (const name of recording.pods ?? []) make(cluster.store, recording.namespace, name);
      replay = new Replay(cluster, recording.namespace, exchanges);
    });
    after(() => cluster.close());

    for (const [index, exchange] of exchanges.entries()) {
      const { request, response, note } = exchange;
      test(`${index}: ${note ?? request.path} (${request.method})`, async () => {
        const { unrecorded } = recording;
        if (unrecorded?.before.test(note ?? "") === true) unrecorded.does(cluster.store);
        const answer = await replay.send(exchange);
        assert.equal(answer.status, response.status, JSON.stringify(answer.body));
        assert.deepEqual(pruned(comparable(answer.body)), pruned(comparable(response.body)));
      });
    }
  });
}

function leftOut({ without = [] }: Recording, { request, note }: Exchange): boolean {
  return without.some((pattern) => pattern.test(note ?? "") || pattern.test(request.path));
}

/** Members that are undefined are as good as absent. */
const pruned = (value: unknown): unknown => (value === undefined ? null : JSON.parse(JSON.stringify(value)));
