import assert from "node:assert/strict";
import { test } from "node:test";
import { openPodArena, type PodArena } from "../support/pod-arena.ts";
import { killOneHalfWay, leaseMs, slots } from "../support/two-controllers.ts";

const jobs = 16;

test(`E2 E5 E16 E22 G5: two controllers of pods, ${jobs} jobs, ${slots} slots; one is killed half-way, and no more than ${slots} pods are ever released at once`, async (t) => {
  const arena = await openPodArena(t, { leaseMs });
  const released = mostReleased(arena);
  await killOneHalfWay(t, arena, jobs);
  assert.deepEqual(
    { released: released(), containers: arena.cluster.kubelet.mostRunning },
    { released: slots, containers: slots },
  );
});

/** Looks at every change of a pod: the most that were released at once and had not ended. */
function mostReleased({ cluster, pods }: PodArena): () => number {
  let most = 0;
  cluster.store.listen(() => {
    const released = pods().filter(
      ({ spec, status }) =>
        spec.schedulingGates === undefined && status.phase !== "Succeeded" && status.phase !== "Failed",
    );
    most = Math.max(most, released.length);
  });
  return () => most;
}
