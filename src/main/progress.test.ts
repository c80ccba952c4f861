import assert from "node:assert/strict";
import { test } from "node:test";
import type { Sighting, Topic } from "../core/lookout.ts";
import { monotonicMs } from "../core/monotonic.ts";
import { loopProgress, stuckMs, watchClaims } from "./progress.ts";

test("a loop that has not turned for long, or never, does not get on", () => {
  assert.equal(loopProgress("a", null).progressing, false);
  assert.equal(loopProgress("a", monotonicMs()).progressing, true);
  assert.equal(loopProgress("a", monotonicMs() - stuckMs - 1).progressing, false);
});

test("the claiming loop may rest while nothing is due, and is late from when something first is", () => {
  const controller = { turnedAt: monotonicMs() };
  let sight = (_sighting: Sighting) => {};
  const lookout = {
    on(topic: Topic, listener: (sighting: Sighting) => void) {
      assert.equal(topic, "due:execution");
      sight = listener;
      return () => undefined;
    },
  };
  const claims = watchClaims(lookout, "execution", controller);
  assert.equal(claims.overdueMs(), 0);
  sight({ serial: 1, position: 0n, queues: ["process"] });
  const first = claims.overdueMs();
  sight({ serial: 2, position: 0n, queues: ["process"] });
  // Seen again is not seen anew: it is late since the first time.
  assert.ok(claims.overdueMs() >= first);
  controller.turnedAt = monotonicMs() + 1;
  assert.equal(claims.overdueMs(), 0);
});
