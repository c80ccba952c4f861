import assert from "node:assert/strict";
import { test } from "node:test";
import { openArena } from "../support/arena.ts";
import { crashAtEachPoint, pointOf } from "../support/crash.ts";
import { otherBuilds, plainBuild } from "../support/crash-scenarios.ts";
import { untilCleaned } from "../support/settled.ts";

crashAtEachPoint(
  "E5 E6 E10 E12 E17 S12: SIGKILL at each point of publishing, cancelling, retrying, taking over",
  otherBuilds,
);

test("a run without a kill has no moment that is in neither list of crash points", async (t) => {
  const scenarios = [...plainBuild, ...otherBuilds];
  const arena = await openArena(t);
  const controller = await arena.controller({ tell: true });
  for (const { job: make, meanwhile } of scenarios) {
    const job = await arena.submit(make(arena));
    await meanwhile?.(arena, job, arena.tenant);
    await untilCleaned(arena, [job]);
  }
  await controller.close();
  // The sweeps of orphans and of the ledger, which begin when a controller does, have tests of their own.
  const known = new Set([
    "call runtime.list",
    "returned runtime.list",
    "commit sweepLedger",
    "committed sweepLedger",
  ]);
  for (const { moments, alone = [] } of scenarios) {
    for (const moment of [...moments, ...alone]) known.add(pointOf(moment).moment);
  }
  const seen = controller.news.flatMap((news) => (news.is === "seen" ? [news.moment] : []));
  const missing = seen.filter((moment) => !moment.startsWith("begin ") && !known.has(moment));
  assert.deepEqual([...new Set(missing)], []);
});
