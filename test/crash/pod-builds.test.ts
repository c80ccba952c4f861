import assert from "node:assert/strict";
import { test } from "node:test";
import { crashAtEachPoint } from "../support/crash.ts";
import { openPodArena, type PodArena } from "../support/pod-arena.ts";
import { podBuilds } from "../support/pod-scenarios.ts";

const arenas: PodArena[] = [];

crashAtEachPoint(
  "E5 E6 E7 E10 E16 E19 E22: SIGKILL at each commit and each request of builds that run as pods",
  podBuilds,
  {
    async open(scope, options) {
      const arena = await openPodArena(scope, options);
      arenas.push(arena);
      return arena;
    },
    batchMax: 11,
    commitsMax: 6,
    leaseMs: 8_000,
  },
);

// Only where a pod starts seconds after its release, on a slow machine: whoever looks next sends it again.
const rare = "lower";

test("these builds make no request of a kind that is not in the list of crash points", () => {
  const seen = arenas.flatMap(({ cluster }) => cluster.requests.map(({ verb }) => verb));
  const moments = podBuilds.flatMap(({ moments: listed, alone = [] }) => [...listed, ...alone]);
  const known = new Set(moments.flatMap((moment) => /^api (\w+)/.exec(moment)?.[1] ?? []));
  assert.deepEqual([...new Set(seen.filter((verb) => verb !== rare && !known.has(verb)))], []);
});
