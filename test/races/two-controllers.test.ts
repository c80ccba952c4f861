import assert from "node:assert/strict";
import { test } from "node:test";
import { openArena } from "../support/arena.ts";
import { markedJob } from "../support/marked-job.ts";
import { assertExactlyOnce, untilCleaned } from "../support/settled.ts";
import { killOneHalfWay, leaseMs, slots } from "../support/two-controllers.ts";

const jobs = 50;

test(`E2 E5 E6 E16: two controllers, ${jobs} jobs, ${slots} slots; one is killed half-way, and nothing runs twice`, async (t) => {
  await killOneHalfWay(t, await openArena(t, { leaseMs }), jobs);
});

test("E2 E16: both controllers get work, and what each starts is started once", async (t) => {
  const arena = await openArena(t, { leaseMs: 30_000 });
  const controllers = [await arena.controller({ tell: true }), await arena.controller({ tell: true })];
  const submitted = [];
  for (let number = 1; number <= 12; number += 1) {
    submitted.push(await arena.submit(markedJob(arena, `job-${number}`, [{}])));
  }
  await untilCleaned(arena, submitted, 120_000);
  const prepared = controllers.map(
    ({ news }) => news.filter((one) => one.is === "seen" && one.moment === "call runtime.prepare").length,
  );
  assert.equal(
    prepared.reduce((sum, own) => sum + own, 0),
    submitted.length,
    String(prepared),
  );
  for (const job of submitted) await assertExactlyOnce(arena, job, { state: "succeeded", attempts: 1 });
  await Promise.all(controllers.map((controller) => controller.close()));
});
