import assert from "node:assert/strict";
import { after, test } from "node:test";
import { deadlocksOf, runMatrix } from "../support/job-races.ts";
import { endings, templatesOf } from "../support/job-states.ts";
import { openJobWorld } from "../support/job-world.ts";

const world = await openJobWorld({ after });
const templates = await templatesOf(world, endings);

test("E10-E14, G14: to its end, every pair of transitions on one job is one after the other", async (t) => {
  const { pairs, waited } = await runMatrix(world, templates);
  t.diagnostic(`${pairs} ordered pairs from ${templates.size} states, of which ${waited} waited`);
});

test("G14: no pair was a deadlock", async () => {
  assert.equal(await deadlocksOf(world), 0);
});
