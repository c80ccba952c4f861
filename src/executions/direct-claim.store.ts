import { HoldfastError } from "../core/errors.ts";
import { brandId, type JobId, type TenantId } from "../core/ids.ts";
import { monotonicMs } from "../core/monotonic.ts";
import { type Database, transition, view } from "../core/postgres/transition.ts";
import { type Instant, type Microseconds, toMilliseconds } from "../core/time.ts";
import {
  claimJob,
  listEnded,
  lockAbandonedClaim,
  lockClaim,
  lockOldestHistorical,
  recordContainer as recordContainerRow,
  releaseClaim as releaseClaimRow,
  renewClaim as renewClaimRow,
} from "./direct-claim.sql.ts";
import { advanceJob, getJobSpec, type JobFailure, lockJob } from "./job.store.ts";

/** One run of a claimant: its host, and the name under which its claims stand. */
export interface Claimant {
  readonly db: Database;
  readonly tenant: TenantId;
  readonly host: string;
  /** `HOST/RUN`. */
  readonly name: string;
  readonly claimUs: Microseconds;
}

/** A historical job that this claimant has, and what is known of it outside. */
export interface DirectClaim {
  readonly job: JobId;
  /** The container that was recorded last; null when none was ever started. */
  readonly container: string | null;
  /** As it was stored, which may have been before there was a schema for it. */
  readonly spec: unknown;
  readonly now: Instant;
  /** On the monotonic clock, never later than the claim's end by the database's. */
  readonly heldUntilMs: number;
}

const scopeOf = ({ tenant }: Claimant, name: string) => ({ role: "controller", tenant, name }) as const;

/** An abandoned claim of this host first, then the job that has waited longest; null when there is neither. */
export async function takeDirectJob(claimant: Claimant): Promise<DirectClaim | null> {
  const { db, host, name, claimUs } = claimant;
  const heldUntilMs = monotonicMs() + toMilliseconds(claimUs);
  // A look that finds nothing changes nothing that anybody waits for.
  const quiet = { ...db, committed: () => undefined };
  const claim = await transition(quiet, scopeOf(claimant, "takeDirectJob"), async (tx) => {
    const abandoned = await tx.run(lockAbandonedClaim, { claimant: name, host, now: tx.now });
    const found = abandoned ?? (await tx.run(lockOldestHistorical, {}));
    if (found === undefined) return null;
    const job = brandId<JobId>(found.job_id);
    const container = abandoned?.container_id ?? null;
    await tx.run(claimJob, { job, claimant: name, claim_us: claimUs, container });
    if (abandoned === undefined) await advanceJob(tx, await lockJob(tx, job), "start");
    const { spec } = await getJobSpec(tx, job);
    return { job, container, spec, now: tx.now, heldUntilMs };
  });
  if (claim !== null) db.committed();
  return claim;
}

/** Whether its cancellation is asked for, and the database's time. Null: the claim is lost. */
export async function renewClaim(
  claimant: Claimant,
  job: JobId,
): Promise<{ readonly cancelled: boolean; readonly now: Instant; readonly heldUntilMs: number } | null> {
  const heldUntilMs = monotonicMs() + toMilliseconds(claimant.claimUs);
  const quiet = { ...claimant.db, committed: () => undefined };
  const row = await transition(quiet, scopeOf(claimant, "renewClaim"), (tx) =>
    tx.run(renewClaimRow, { job, claimant: claimant.name, claim_us: claimant.claimUs }),
  );
  return row === undefined ? null : { ...row, heldUntilMs };
}

/** `fenced` when the claim is lost; true when the job should be cancelled instead of started. */
export function recordContainer(claimant: Claimant, job: JobId, container: string): Promise<boolean> {
  return transition(claimant.db, scopeOf(claimant, "recordContainer"), async (tx) => {
    const { cancelled } = held(await tx.run(recordContainerRow, { job, claimant: claimant.name, container }));
    return cancelled;
  });
}

/** The job's end. A cancellation that was asked for before this wins over how the container ended. */
export function settleDirectJob(claimant: Claimant, job: JobId, failure: JobFailure | null): Promise<void> {
  return transition(claimant.db, scopeOf(claimant, "settleDirectJob"), async (tx) => {
    const { cancelled } = held(await tx.run(lockClaim, { job, claimant: claimant.name }));
    const row = await lockJob(tx, job);
    if (cancelled) await advanceJob(tx, row, "cancel");
    else if (failure === null) await advanceJob(tx, row, "succeed");
    else await advanceJob(tx, row, "fail", failure);
  });
}

/** Whatever runs of it goes on; the next claimant of this host finds it. */
export async function releaseClaim(claimant: Claimant, job: JobId): Promise<void> {
  await transition(claimant.db, scopeOf(claimant, "releaseClaim"), (tx) =>
    tx.run(releaseClaimRow, { job, claimant: claimant.name }),
  );
}

/** Which of these jobs are over. */
export function endedJobs(claimant: Claimant, jobs: readonly string[]): Promise<ReadonlySet<string>> {
  return view(claimant.db, scopeOf(claimant, "endedJobs"), async (tx) => {
    const rows = await tx.run(listEnded, { jobs: [...jobs] });
    return new Set(rows.map((row) => row.job_id));
  });
}

function held<Row>(row: Row | undefined): Row {
  if (row === undefined) throw new HoldfastError("fenced", "the claim ran out, or another has it");
  return row;
}
