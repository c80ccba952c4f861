import assert from "node:assert/strict";
import { after, test } from "node:test";
import { apply, operations } from "../support/job-model.ts";
import { perform } from "../support/job-operations.ts";
import { allowed, askStore, deadlocksOf, runAll, runMatrix } from "../support/job-races.ts";
import { beginnings, templatesOf } from "../support/job-states.ts";
import { openJobWorld } from "../support/job-world.ts";

const world = await openJobWorld({ after });
const templates = await templatesOf(world, beginnings);

test("E5-E9: what the model refuses, the store refuses, and nothing changes", async (t) => {
  const cases = [...templates].flatMap(([state, template]) =>
    operations.flatMap((operation) => {
      const next = apply(operation, template.model, template.model);
      const name = `${state}: ${operation}`;
      // Time passes whoever minds.
      if (next === null || allowed(operation, template.model) || operation === "deadline") return [];
      return [{ name, template, operation, expected: next.result }];
    }),
  );
  await runAll(cases, 1, async ({ template: { job, model }, template, operation, expected }) => {
    assert.equal(await perform(world, world.bench.db, operation, template), expected);
    assert.deepEqual((await world.read(job)).model, model);
  });
  await askStore(world);
  t.diagnostic(`${cases.length} refusals`);
});

test("E2-E9, G14: until it runs, every pair of transitions on one job is one after the other", async (t) => {
  const { pairs, waited } = await runMatrix(world, templates);
  t.diagnostic(`${pairs} ordered pairs from ${templates.size} states, of which ${waited} waited`);
});

test("G14: no pair was a deadlock", async () => {
  assert.equal(await deadlocksOf(world), 0);
});
