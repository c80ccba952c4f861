import assert from "node:assert/strict";
import { test } from "node:test";
import { directStack, imageSpec, insertHistorical } from "../support/historical.ts";
import { until } from "../support/until.ts";

const historicalJobs = 24;
const submittedJobs = 4;

interface Row {
  readonly job_id: string;
  readonly state: string;
  readonly enrolled: boolean;
  readonly claimed: boolean;
  readonly attempts: number;
}

test("E13: controllers and direct claimants on the same rows run each job exactly once, by one of them", async (t) => {
  const { stack, host } = await directStack(t);
  // An execution knows which attempt it is; a container of the direct claimant does not.
  const spec = imageSpec([`echo "$HOLDFAST_JOB $\{HOLDFAST_ATTEMPT:-direct}" >> ${host.markFile}`]);
  const historical: string[] = [];
  for (let n = 0; n < historicalJobs; n += 1) historical.push(await insertHistorical(stack, spec));
  const kept = `select s.*, s.xmin::text as written, j.job_id, j.name, j.priority, j.labels::text, j.created_at, j.queued_at
    from holdfast.jobs j join holdfast.job_specs s using (tenant_id, spec_digest) where j.job_id = any ($1) order by j.job_id`;
  const before = await stack.rows(kept, [historical]);
  await stack.rows(
    "insert into holdfast.slots (pool, slot) select 'default', n from generate_series(3, 6) n",
  );

  const enrol = async (job: string): Promise<boolean> => {
    const rows = await stack.rows(
      `with enrolled as (
         update holdfast.jobs set enrolled_at = now()
         where job_id = $1 and state = 'queued' and claimed_by is null and enrolled_at is null
         returning tenant_id, job_id, priority, queued_at)
       insert into holdfast.leases (tenant_id, kind, resource_id, queue, priority, due_at, wake_at)
       select tenant_id, 'admission', job_id, 'default', priority, queued_at, queued_at from enrolled
       returning resource_id`,
      [job],
    );
    return rows.length === 1;
  };

  // Two processes of each kind, several jobs at once in each, and an operator who enrols from the other end.
  const controllers = [await stack.foundation("controller-1"), await stack.foundation("controller-2")];
  for (const foundation of controllers) await stack.controller(foundation);
  const [submitter] = controllers;
  assert.ok(submitter !== undefined);
  const openClaimant = async () =>
    host.claimant(await stack.foundation("direct"), { host: "host-1", jobsMax: 3 });
  const enrolNewerHalf = async () => {
    let moved = 0;
    for (const [index, job] of historical
      .slice(historicalJobs / 2)
      .toReversed()
      .entries()) {
      if (await enrol(job)) moved += 1;
      if (index >= submittedJobs) continue;
      const metadata = { name: `submitted-${index}` };
      await stack.submit(submitter, { apiVersion: "holdfast/v1", kind: "Job", metadata, spec });
    }
    return moved;
  };
  const [moved, ...claimants] = await Promise.all([enrolNewerHalf(), openClaimant(), openClaimant()]);

  const rows = await until(
    "every job is over",
    async () => {
      const all = await stack.rows<Row>(
        `select j.job_id, j.state, j.enrolled_at is not null as enrolled, j.claimed_by is not null as claimed,
           (select count(*)::int from holdfast.execution_attempts a where a.job_id = j.job_id) as attempts
         from holdfast.jobs j`,
      );
      return all.every(({ state }) => state !== "queued" && state !== "running") ? all : null;
    },
    120_000,
  );
  assert.equal(rows.length, historicalJobs + submittedJobs);
  const marks = await host.marks();
  const expected = rows.map(({ job_id, enrolled }) => `${job_id} ${enrolled ? "1" : "direct"}`);
  assert.deepEqual(marks.toSorted(), expected.toSorted(), "each ran once, by the one whose job it was");
  for (const row of rows) {
    assert.equal(row.state, "succeeded");
    assert.equal(row.claimed, !row.enrolled, `${row.job_id} has one owner`);
    assert.equal(row.attempts, row.enrolled ? 1 : 0);
  }
  const direct = rows.filter(({ enrolled }) => !enrolled).length;
  assert.equal(direct, historicalJobs - moved);
  assert.ok(direct > 0 && moved > 0, "both had something to do");
  t.diagnostic(
    `${direct} jobs by the direct claimants, ${rows.length - direct} by the controllers, ${moved} enrolled on the way`,
  );
  assert.deepEqual(
    await stack.rows(kept, [historical]),
    before,
    "nothing else of a historical row or spec has changed",
  );
  for (const claimant of claimants) assert.deepEqual(claimant.errors, []);
});
