import assert from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";
import type { JobId } from "../../src/core/ids.ts";
import type { Arena } from "./arena.ts";
import { runtimeOf } from "./controller-host.ts";
import { assertInvariantsOf } from "./invariants.ts";
import { until } from "./until.ts";

/** Waits until everything of these jobs is over and cleaned. */
export async function untilCleaned(arena: Arena, jobs: readonly JobId[], within = 120_000): Promise<void> {
  const open = async () => {
    // The wait is long, and each look costs the processes that are waited for some of their time.
    await delay(100);
    return arena.rows<{ job_id: string; job: string; attempt: string | null }>(
      `select j.job_id, j.state as job, a.state as attempt from holdfast.jobs j
       left join holdfast.execution_attempts a on a.tenant_id = j.tenant_id and a.job_id = j.job_id
       where j.job_id = any ($1)
         and (j.finished_at is null or (a.attempt_id is not null and a.state <> 'cleaned'))`,
      [jobs],
    );
  };
  await until("everything is over and cleaned", async () => (await open()).length === 0, within).catch(
    async (error: unknown) => {
      const sandboxes = await arena.rows(
        `select s.step, s.state, s.uid, s.outcome, s.outcome_message, s.stop_unproven_reason, s.log_complete_at, s.log_lost_reason
         from holdfast.sandbox_attempts s join holdfast.execution_attempts a on a.attempt_id = s.owner_id
         where a.job_id = any ($1) and a.state <> 'cleaned'`,
        [jobs],
      );
      console.log(await open(), sandboxes, await arena.rows("select * from holdfast.leases"));
      throw error;
    },
  );
}

/** Each phase that ran has one released sandbox in the record and one mark outside; no attempt too many was made. */
export async function assertExactlyOnce(
  arena: Pick<Arena, "rows" | "marks">,
  job: JobId,
  expected: { readonly state: string; readonly attempts: number },
): Promise<void> {
  const [row] = await arena.rows<{ state: string; failure_message: string | null }>(
    "select state, failure_message from holdfast.jobs where job_id = $1",
    [job],
  );
  assert.equal(row?.state, expected.state, row?.failure_message ?? "");
  const attempts = await arena.rows("select from holdfast.execution_attempts where job_id = $1", [job]);
  assert.equal(attempts.length, expected.attempts, "attempts");

  const phases = await arena.rows<{ key: string; state: string; released: number; commands: number }>(
    `select concat_ws(' ', a.job_id, a.ordinal, p.name) as key, p.state,
       count(s.released_at)::integer as released,
       count(*) filter (where s.outcome = 'exited')::integer as commands
     from holdfast.execution_attempts a
     join holdfast.execution_phases p using (tenant_id, attempt_id)
     left join holdfast.sandbox_attempts s
       on s.tenant_id = a.tenant_id and s.owner_id = a.attempt_id and s.step = p.name
     where a.job_id = $1 group by a.job_id, a.ordinal, p.name, p.state`,
    [job],
  );
  const marks = await arena.marks(job);
  for (const { key, state, released, commands } of phases) {
    const starts = marks.filter((mark) => mark === key).length;
    assert.ok(released <= 1 && starts <= released, `${key}: ${released} released, ${starts} starts`);
    if (state === "succeeded") assert.deepEqual([released, commands, starts], [1, 1, 1], key);
    if (state === "skipped") assert.deepEqual([released, starts], [0, 0], key);
  }
}

/** After the end of all jobs: slots, leases and sandboxes in the record. */
export async function assertRecordSettled(arena: Pick<Arena, "rows">): Promise<void> {
  assert.deepEqual(
    await arena.rows("select * from holdfast.slots where attempt_id is not null"),
    [],
    "slots",
  );
  const chunks = await arena.rows("select sandbox_id from holdfast.log_chunks");
  assert.deepEqual(chunks, [], "output that is in no archive");
  const lost = await arena.rows(
    `select s.name from holdfast.sandbox_attempts s left join holdfast.log_archives a on a.owner_id = s.owner_id
     where s.log_seq > 0 and a.owner_id is null`,
  );
  assert.deepEqual(lost, [], "output that is nowhere");
  // A published artifact and an archived log have one, until their time is over (E11, E19).
  const leases = await arena.rows("select * from holdfast.leases where kind <> 'retention'");
  assert.deepEqual(leases, [], "leases");
  const unsettled = await arena.rows(
    "select name, state from holdfast.sandbox_attempts where state <> 'removed'",
  );
  assert.deepEqual(unsettled, [], "sandboxes");
}

/** After the end of all jobs, in the record and outside. */
export async function assertNothingLeft(arena: Arena): Promise<void> {
  await assertRecordSettled(arena);
  const objects: string[] = [];
  const { signal } = new AbortController();
  for await (const { name } of runtimeOf(arena.shared).list(signal)) objects.push(name);
  assert.deepEqual(objects, [], "objects of the runtime");
  const uids = await arena.rows<{ uid: string }>(
    "select uid from holdfast.sandbox_attempts where uid is not null",
  );
  await arena.world.assertNoneRun(uids.map((row) => row.uid));
  await assertInvariantsOf(arena.foundation.db);
}
