import { brandId, type IncarnationId, type JobId, type TenantId } from "../core/ids.ts";
import { deleteLease, returnLease } from "../core/lease.store.ts";
import { type Database, transition, view } from "../core/postgres/transition.ts";
import { instant, type Microseconds } from "../core/time.ts";
import type { JobSpec } from "../wire/job.ts";
import { claimAdmissions, lockPool, reopenAdmissions } from "./admission.sql.ts";
import type { Failure } from "./attempt.ts";
import { admissionKind, advanceJob, getJob, getJobSpec, type JobRow, lockJob } from "./job.store.ts";

/** A waiting job that a controller may start now. */
export interface Admission {
  readonly tenant: TenantId;
  readonly job: JobId;
  readonly holder: IncarnationId;
  readonly epoch: bigint;
}

/** The waiting jobs of a pool that have a slot to go to, in order; at most `limit` (E2). */
export function claimWaiting(
  db: Database,
  claim: {
    readonly pool: string;
    readonly holder: IncarnationId;
    readonly limit: number;
    readonly leaseUs: bigint;
  },
): Promise<Admission[]> {
  const scope = { role: "dispatcher", tenant: null, name: "claim admissions" } as const;
  // A claim changes nothing that anybody waits for.
  return transition({ ...db, committed: () => undefined }, scope, async (tx) => {
    await tx.run(lockPool, { pool: claim.pool });
    await tx.run(reopenAdmissions, { pool: claim.pool, now: tx.now });
    const rows = await tx.run(claimAdmissions, {
      pool: claim.pool,
      holder: claim.holder,
      now: tx.now,
      limit: BigInt(claim.limit),
      lease_us: claim.leaseUs,
    });
    return rows.map((row) => ({
      tenant: brandId<TenantId>(row.tenant_id),
      job: brandId<JobId>(row.resource_id),
      holder: claim.holder,
      epoch: row.epoch,
    }));
  });
}

/** The job and its spec, for the plan. */
export function readWaiting(
  db: Database,
  admission: Admission,
): Promise<{ readonly job: JobRow; readonly spec: JobSpec }> {
  const { tenant, job } = admission;
  return view(db, { role: "controller", tenant, name: "readWaiting" }, async (tx) => ({
    job: await getJob(tx, job),
    spec: (await getJobSpec(tx, job)).spec,
  }));
}

const fenced = (
  db: Database,
  admission: Admission,
  name: string,
  body: Parameters<typeof transition<void>>[2],
): Promise<void> => {
  const { tenant, job, holder, epoch } = admission;
  const fence = { kind: admissionKind, resource: job, holder, epoch };
  return transition(db, { role: "controller", tenant, name, fence }, body);
};

/** It could not start after all: it goes on waiting where it was in the order. */
export function returnAdmission(db: Database, admission: Admission): Promise<void> {
  return fenced(db, admission, "returnAdmission", async (tx) => {
    const job = await getJob(tx, admission.job);
    await returnLease(tx, { kind: admissionKind, resource: admission.job }, job.queued_at);
  });
}

/** It could not start for a reason of its own: it waits for a while, and then behind the others. */
export function postponeAdmission(db: Database, admission: Admission, us: Microseconds): Promise<void> {
  return fenced(db, admission, "postponeAdmission", async (tx) => {
    await returnLease(tx, { kind: admissionKind, resource: admission.job }, instant(tx.now + us));
  });
}

/** It can never start: its plan is refused. */
export function refuseAdmission(db: Database, admission: Admission, failure: Failure): Promise<void> {
  return fenced(db, admission, "refuseAdmission", async (tx) => {
    const row = await lockJob(tx, admission.job);
    await deleteLease(tx, { kind: admissionKind, resource: admission.job });
    await advanceJob(tx, row, "fail", failure);
  });
}
