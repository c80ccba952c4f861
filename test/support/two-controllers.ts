import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import type { Arena } from "./arena.ts";
import { markedJob } from "./marked-job.ts";
import { assertExactlyOnce, assertNothingLeft, untilCleaned } from "./settled.ts";
import { until } from "./until.ts";

/** The slots of the pool that every job of these tests is in. */
export const slots = 2;
export const leaseMs = 2_000;

/** The first ones wait for each other: all slots are really used at once, however fast a job is. */
const together = `until [ "$(wc -l < "$MARKS")" -ge ${slots} ]; do sleep 0.05; done`;

/** Two controllers, many jobs, two slots; one is killed when half of the jobs have started. */
export async function killOneHalfWay(t: TestContext, arena: Arena, jobs: number): Promise<void> {
  const first = await arena.controller();
  const second = await arena.controller();
  const watch = watchSlots(arena);
  const submitted = [];
  for (let number = 1; number <= jobs; number += 1) {
    submitted.push(
      await arena.submit(markedJob(arena, `job-${number}`, [number <= slots ? { run: together } : {}])),
    );
  }

  await until("half of them have started", async () => (await arena.marks()).length >= jobs / 2, 120_000);
  const abandoned = await until(
    "one of them runs under the first",
    async () => (await runningUnder(arena, first.holder))[0],
    120_000,
  );
  first.signal("SIGKILL");
  await untilCleaned(arena, submitted, 240_000);
  const most = await watch.end();

  assert.ok(most.sampled > jobs, `${most.sampled} samples`);
  assert.ok(most.held <= slots, `${most.held} attempts held a slot at once`);
  assert.equal(await mostAtOnceByTime(arena), slots);
  assert.equal(await mostAtOnceByChanges(arena), slots);
  for (const job of submitted) await assertExactlyOnce(arena, job, { state: "succeeded", attempts: 1 });
  await assertNothingLeft(arena);
  assert.deepEqual(await startsOutOfOrder(arena), []);
  t.diagnostic(`${most.sampled} samples; killed while it ran ${abandoned.name}`);
  await second.close();
}

/** Jobs with a released sandbox whose attempt this process attends to. */
function runningUnder(arena: Arena, holder: string): Promise<{ name: string }[]> {
  return arena.rows(
    `select j.name from holdfast.leases l
     join holdfast.execution_attempts a on a.tenant_id = l.tenant_id and a.attempt_id = l.resource_id
     join holdfast.jobs j on j.tenant_id = a.tenant_id and j.job_id = a.job_id
     join holdfast.sandbox_attempts s on s.tenant_id = a.tenant_id and s.owner_id = a.attempt_id
     where l.kind = 'execution' and l.holder = $1 and s.state = 'released'`,
    [holder],
  );
}

/** Looks again and again how many attempts hold a slot, by what the database says and by the slots' count. */
function watchSlots(arena: Arena) {
  let ended = false;
  let held = 0;
  let sampled = 0;
  const loop = (async () => {
    while (!ended) {
      const [row] = await arena.rows<{ held: number; active: number }>(
        `select (select count(*) from holdfast.slots where attempt_id is not null)::integer as held,
           (select count(*) from holdfast.execution_attempts where state = 'active')::integer as active`,
      );
      held = Math.max(held, row?.held ?? 0, row?.active ?? 0);
      sampled += 1;
    }
  })();
  return {
    async end() {
      ended = true;
      await loop;
      return { held, sampled };
    },
  };
}

/** The whole history: of all attempts' intervals from start to finish, how many overlap at most. */
async function mostAtOnceByTime(arena: Arena): Promise<number> {
  const [row] = await arena.rows<{ most: number }>(
    `select max(held)::integer as most from (
       select sum(step) over (order by at, step) as held from (
         select started_at as at, 1 as step from holdfast.execution_attempts
         union all
         select finished_at, -1 from holdfast.execution_attempts) edges) running`,
  );
  return row?.most ?? 0;
}

/** The same by the change log, in the order that every watcher sees. */
async function mostAtOnceByChanges(arena: Arena): Promise<number> {
  const [row] = await arena.rows<{ most: number; unstamped: number }>(
    `select max(held)::integer as most, count(*) filter (where position is null)::integer as unstamped from (
       select position, sum(case operation when 'attempt.started' then 1 else -1 end) over (order by position) as held
       from holdfast.resource_changes where operation in ('attempt.started', 'attempt.finished')) running`,
  );
  assert.equal(row?.unstamped, 0);
  return row?.most ?? 0;
}

/**
 * Jobs whose claim on a slot came before that of one that waited longer. Claims are made in order, some at once
 * for all free slots; of those that run at the same time any may commit its start first.
 */
function startsOutOfOrder(arena: Arena): Promise<unknown[]> {
  return arena.rows(
    `with started as (
       select j.name, row_number() over (order by j.queued_at, j.job_id) as place,
         row_number() over (order by a.started_at) as turn
       from holdfast.jobs j join holdfast.execution_attempts a using (tenant_id, job_id))
     select name, place, turn from started where abs(place - turn) >= ${slots}`,
  );
}
