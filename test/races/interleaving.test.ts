import assert from "node:assert/strict";
import { after, test } from "node:test";
import * as fc from "fast-check";
import type { JobModel } from "../support/job-model.ts";
import { allowed, askStore, deadlocksOf, movesClock, pairsOf, race, runAll } from "../support/job-races.ts";
import { beginnings, endings, templatesOf } from "../support/job-states.ts";
import { openJobWorld } from "../support/job-world.ts";

const world = await openJobWorld({ after });
const templates = await templatesOf(world, { ...beginnings, ...endings });

/** Statements of the longest transition, with room. */
const statementsMax = 40;
const sample = 400;

const published = ({ state, artifact, cancelRequested }: JobModel) =>
  state === "succeeded" && artifact && !cancelRequested;
const cancelled = ({ state, artifact, cancelRequested }: JobModel) =>
  (state === "cancelled" || state === "running") && !artifact && cancelRequested;

test("E10: cancellation and publication, the one begun before each statement of the other: exactly one wins", async (t) => {
  const template = templates.get("ready to succeed");
  assert(template !== undefined);
  const wins = { published: 0, cancelled: 0 };
  for (const [first, second] of [
    ["finish succeeded", "cancel"],
    ["cancel", "finish succeeded"],
  ] as const) {
    for (let at = 1, statements = statementsMax; at <= statements; at += 1) {
      const name = `${second} before statement ${at} of ${first}`;
      const result = await race(world, { name, template, first, second }, at);
      statements = result.statements;
      assert.notEqual(published(result.job), cancelled(result.job), name);
      wins[published(result.job) ? "published" : "cancelled"] += 1;
    }
  }
  await askStore(world);
  assert(wins.published > 0 && wins.cancelled > 0);
  t.diagnostic(
    `${wins.published + wins.cancelled} interleavings: ${wins.published} published, ${wins.cancelled} cancelled`,
  );
});

test("G14: pairs that are both allowed, the one begun in the middle of the other", async (t) => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const pairs = pairsOf(templates).filter(
    (pair) => !movesClock(pair) && allowed(pair.second, pair.template.model),
  );
  const drawn = fc.record({ pair: fc.constantFrom(...pairs), at: fc.integer({ min: 1, max: 16 }) });
  const cases = fc
    .sample(drawn, { numRuns: sample, seed })
    .map(({ pair, at }) => ({ ...pair, name: `seed ${seed}: ${pair.name} before statement ${at}`, at }));
  await runAll(cases, 3, async (one) => {
    await race(world, one, one.at);
  });
  await askStore(world);
  t.diagnostic(`${cases.length} of ${pairs.length} pairs and their statements, seed ${seed}`);
});

test("G14: no interleaving was a deadlock", async () => {
  assert.equal(await deadlocksOf(world), 0);
});
