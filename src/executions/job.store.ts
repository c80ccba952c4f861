import { canonicalDigest } from "../core/canonical.ts";
import { appendChange } from "../core/change.sql.ts";
import { assertKindAdmits } from "../core/drain.store.ts";
import { HoldfastError } from "../core/errors.ts";
import { brandId, type JobId, uuidv7 } from "../core/ids.ts";
import { deleteLease, insertLease, lockLease, setLeasePriority } from "../core/lease.sql.ts";
import type { Transaction } from "../core/postgres/transition.ts";
import { formatInstant, type Instant } from "../core/time.ts";
import type { JobPatch, JobSpec, JobState, JobSubmission, JobView } from "../wire/job.ts";
import { failureOf } from "./attempt.ts";
import {
  cancelQueuedJob,
  countQueued,
  hastenExecution,
  insertJob,
  listJobs as listJobRows,
  lockAdmission,
  lockJob as lockJobRow,
  moveJob,
  poolExists,
  type ReadJobRow,
  readJob,
  readJobSpec,
  requestJobCancellation,
  setJobIntent,
} from "./job.sql.ts";
import { checkSizes, decideCancellation, type JobEvent, nextJobState, patchIntent } from "./job.ts";
import { planDefaults } from "./plan.ts";

/** A job as the statements of `job.sql` give it. */
export type JobRow = ReadJobRow;

/** The lease that makes a waiting job due: kind `admission`, the job's id, its pool as queue. */
export const admissionKind = "admission";
const defaultPriority = 2;
const queueFullRetrySeconds = 5;

/**
 * Puts a job into its tenant's bounded queue: spec, job, admission lease and change, in the caller's
 * transaction (G2). `queue_full` when `queueMax` jobs wait already (E2).
 */
export async function submitJob(
  tx: Transaction,
  { submission, queueMax }: { readonly submission: JobSubmission; readonly queueMax: number },
): Promise<JobRow> {
  checkSizes(submission);
  const { metadata, spec } = submission;
  await assertKindAdmits(tx, "jobs");
  if (!(await admissionHasRoom(tx, queueMax))) {
    throw new HoldfastError("queue_full", `${queueMax} jobs are waiting already`, {
      retryAfterSeconds: queueFullRetrySeconds,
    });
  }
  const pool = spec.pool ?? planDefaults.pool;
  if (!(await tx.run(poolExists, { pool })).known) {
    throw new HoldfastError("invalid_request", `there is no pool ${pool}: the job would wait for ever`, {
      fields: [{ pointer: "/spec/pool", message: "not a pool of this installation" }],
    });
  }
  const job = await tx.run(insertJob, {
    job: uuidv7(),
    name: metadata.name,
    spec,
    spec_digest: canonicalDigest(spec),
    pool,
    priority: metadata.priority ?? defaultPriority,
    labels: metadata.labels ?? {},
    now: tx.now,
  });
  await recordChange(tx, job, "job.submitted");
  return job;
}

/**
 * Whether one more job may wait. Takes the tenant's admission lock until the transaction ends, so that the
 * answer stays true (E2, E12).
 */
export async function admissionHasRoom(tx: Transaction, queueMax: number): Promise<boolean> {
  await tx.run(lockAdmission, {});
  const { queued } = await tx.run(countQueued, { queue_max: BigInt(queueMax) });
  return queued < queueMax;
}

async function admit(
  tx: Transaction,
  job: { readonly job_id: string; readonly priority: number },
  { pool, dueAt }: { readonly pool: string; readonly dueAt: Instant },
): Promise<void> {
  await tx.run(insertLease, {
    kind: admissionKind,
    resource: job.job_id,
    queue: pool,
    priority: job.priority,
    due_at: dueAt,
  });
}

export async function getJob(tx: Transaction, job: JobId): Promise<JobRow> {
  return found(await tx.run(readJob, { job }));
}

/** Its row stays as it is until the transaction ends. Lock its lease first, where that is needed too. */
export async function lockJob(tx: Transaction, job: JobId): Promise<JobRow> {
  return found(await tx.run(lockJobRow, { job }));
}

/** The spec was validated by the schema when it was submitted, and never changes. */
export async function getJobSpec(
  tx: Transaction,
  job: JobId,
): Promise<{ readonly spec: JobSpec; readonly digest: string }> {
  const row = found(await tx.run(readJobSpec, { job }));
  return { spec: row.spec as JobSpec, digest: row.spec_digest };
}

function found<Row>(row: Row | undefined): Row {
  if (row === undefined) throw new HoldfastError("not_found", "there is no such job");
  return row;
}

export interface JobFilter {
  readonly states: readonly JobState[];
  readonly labels: Readonly<Record<string, string>>;
  readonly name: string | null;
}

export interface JobPosition {
  readonly createdAt: Instant;
  readonly job: JobId;
}

/** Newest first; `next` is where the following page begins, null on the last one. */
export async function listJobs(
  tx: Transaction,
  filter: JobFilter,
  page: { readonly after: JobPosition | null; readonly limit: number },
): Promise<{ readonly jobs: readonly JobRow[]; readonly next: JobPosition | null }> {
  const rows = await tx.run(listJobRows, {
    states: [...filter.states],
    labels: filter.labels,
    name: filter.name,
    after_created_at: page.after?.createdAt ?? null,
    after_job: page.after?.job ?? null,
    limit: BigInt(page.limit + 1),
  });
  const jobs = rows.slice(0, page.limit);
  const last = jobs.at(-1);
  const more = rows.length > page.limit && last !== undefined;
  return { jobs, next: more ? { createdAt: last.created_at, job: brandId<JobId>(last.job_id) } : null };
}

/** Throws when the caller knows another version than the one that is there (G4). */
export type Precondition = (version: bigint) => void;

/** Labels, and priority while it waits. */
export async function patchJob(
  tx: Transaction,
  change: { readonly job: JobId; readonly patch: JobPatch; readonly precondition?: Precondition },
): Promise<JobRow> {
  const { job, patch } = change;
  if (patch.priority !== undefined) await tx.run(lockLease, { kind: admissionKind, resource: job });
  const row = await lockJob(tx, job);
  change.precondition?.(row.resource_version);
  const intent = patchIntent(stateOf(row), { labels: labelsOf(row), priority: row.priority }, patch);
  if (intent === null) return row;
  if (intent.priority !== row.priority) {
    await tx.run(setLeasePriority, { kind: admissionKind, resource: job, priority: intent.priority });
  }
  await tx.run(setJobIntent, { job, labels: intent.labels, priority: intent.priority });
  return changed(tx, job, "job.patched");
}

/**
 * Persisted before anything is stopped, and never taken back (G8). A waiting job is cancelled here and now; a
 * running one by its controller. Its admission lease is locked before the job, as everywhere; should a retry
 * put the job back into the queue between the two, PostgreSQL may see a deadlock and the whole runs again.
 */
export async function cancelJob(
  tx: Transaction,
  request: { readonly job: JobId; readonly reason: string; readonly precondition?: Precondition },
): Promise<JobRow> {
  const { job, reason } = request;
  await tx.run(lockLease, { kind: admissionKind, resource: job });
  await tx.run(hastenExecution, { job, now: tx.now });
  const row = await lockJob(tx, job);
  request.precondition?.(row.resource_version);
  const decision = decideCancellation({
    state: stateOf(row),
    cancelRequested: row.cancel_requested_at !== null,
  });
  switch (decision) {
    case "cancel_now":
      await tx.run(deleteLease, { kind: admissionKind, resource: job });
      await tx.run(cancelQueuedJob, { job, reason });
      return changed(tx, job, "job.cancelled");
    case "request":
      await tx.run(requestJobCancellation, { job, reason });
      return changed(tx, job, "job.cancel_requested");
    case "nothing":
      return row;
    case "refuse":
      throw new HoldfastError("conflict", `the job has ${row.state} already`);
    default:
      return decision satisfies never;
  }
}

export interface JobFailure {
  readonly code: string;
  readonly message: string;
}

/** For controllers, with the job's row locked. `pool` is where a job waits again after `requeue` (E12). */
export async function advanceJob(
  tx: Transaction,
  row: JobRow,
  event: Exclude<JobEvent, "requeue"> | { readonly requeue: { readonly pool: string } },
  failure: JobFailure | null = null,
): Promise<JobRow> {
  const name = typeof event === "string" ? event : "requeue";
  const state = nextJobState(stateOf(row), name);
  const { queued_at: dueAt } = await tx.run(moveJob, {
    job: row.job_id,
    state,
    failure_code: state === "failed" ? (failure?.code ?? "failed") : null,
    failure_message: state === "failed" ? (failure?.message ?? null) : null,
  });
  if (typeof event !== "string") await admit(tx, row, { pool: event.requeue.pool, dueAt });
  return changed(tx, brandId<JobId>(row.job_id), jobOperations[name]);
}

const jobOperations = {
  start: "job.started",
  requeue: "job.requeued",
  succeed: "job.succeeded",
  fail: "job.failed",
  cancel: "job.cancelled",
} as const satisfies Record<JobEvent, string>;

/** The change of a transition that has just bumped the version, with the job as it is now. */
async function changed(tx: Transaction, job: JobId, operation: string): Promise<JobRow> {
  const row = await getJob(tx, job);
  await recordChange(tx, row, operation);
  return row;
}

async function recordChange(tx: Transaction, row: JobRow, operation: string): Promise<void> {
  await tx.run(appendChange, {
    kind: "job",
    resource: row.job_id,
    root: row.job_id,
    version: row.resource_version,
    operation,
    body: jobView(row),
  });
}

const stateOf = (row: JobRow) => row.state as JobState;
const labelsOf = (row: JobRow) => row.labels as Readonly<Record<string, string>>;
const timeOrNull = (at: Instant | null) => (at === null ? null : formatInstant(at));

export function jobView(row: JobRow): JobView {
  return {
    id: row.job_id,
    name: row.name,
    state: stateOf(row),
    priority: row.priority,
    labels: { ...labelsOf(row) },
    resource_version: String(row.resource_version),
    spec_digest: row.spec_digest,
    attempts: row.attempts,
    created_at: formatInstant(row.created_at),
    queued_at: formatInstant(row.queued_at),
    finished_at: timeOrNull(row.finished_at),
    cancel_requested_at: timeOrNull(row.cancel_requested_at),
    cancel_reason: row.cancel_reason,
    failure: failureOf(row),
  };
}
