import assert from "node:assert/strict";
import { test } from "node:test";
import { openPodArena, type PodArena } from "../support/pod-arena.ts";
import { killOneHalfWay, leaseMs, slots } from "../support/two-controllers.ts";

const jobs = 16;

test(`E2 E5 E16 E22 G5: two controllers of pods, ${jobs} jobs, ${slots} slots; one is killed half-way, and no more than ${slots} pods are ever released at once`, async (t) => {
  const arena = await openPodArena(t, { leaseMs });
  const most = watchPods(arena);
  await killOneHalfWay(t, arena, jobs);
  assert.equal(most.released, slots);
  // Two may have run one after the other, each time that somebody looked.
  assert.ok(most.containers >= 1 && most.containers <= slots, `${most.containers} containers at once`);
});

/** At every change of a pod: how many are released and have not ended, and how many containers really run. */
function watchPods({ cluster, pods }: PodArena) {
  const most = { released: 0, containers: 0 };
  cluster.store.listen(() => {
    const released = pods().filter(
      ({ spec, status }) =>
        spec.schedulingGates === undefined && status.phase !== "Succeeded" && status.phase !== "Failed",
    );
    most.released = Math.max(most.released, released.length);
    most.containers = Math.max(most.containers, cluster.kubelet.running);
  });
  return most;
}
