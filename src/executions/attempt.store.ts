import { appendChange } from "../core/change.sql.ts";
import { HoldfastError } from "../core/errors.ts";
import { brandId, type IncarnationId, type JobId, type TenantId, uuidv7 } from "../core/ids.ts";
import { lockLease } from "../core/lease.sql.ts";
import { deleteLease, insertHeldLease, insertLease, underLease } from "../core/lease.store.ts";
import type { HeldLease, LeasePriority } from "../core/lease.ts";
import { monotonicMs } from "../core/monotonic.ts";
import { assertFence } from "../core/postgres/transition.sql.ts";
import { type Database, type Transaction, transition, view } from "../core/postgres/transition.ts";
import { type Instant, instant, type Microseconds, microseconds } from "../core/time.ts";
import { readOutputState } from "../sandboxes/log-archive.store.ts";
import { retentionKind } from "../sandboxes/retention.ts";
import { listSandboxes } from "../sandboxes/sandbox.store.ts";
import type { PhaseKind } from "../wire/job.ts";
import * as sql from "./attempt.sql.ts";
import { insertPhases } from "./attempt.sql.ts";
import {
  type AttemptSnapshot,
  type AttemptState,
  deadlineFailure,
  type Failure,
  failureMessageLengthMax,
  failureOf,
  type Outcome,
  type Phase,
  type PhaseState,
} from "./attempt.ts";
import { joinJobTrace } from "./job.sql.ts";
import { admissionHasRoom, admissionKind, advanceJob, lockJob } from "./job.store.ts";
import { publishArtifact, readDeclaredArtifact } from "./object.sql.ts";
import { type ListPhasesRow, listPhases, listPins, skipPendingPhases } from "./phase.sql.ts";
import { type Plan, planDigest } from "./plan.ts";

/** The lease of an attempt: kind `execution`, the attempt's id. Its holder is the one controller that may act. */
export const executionKind = "execution";

export { underLease };

export interface Started {
  readonly attempt: string;
  readonly deadline: Instant;
  /** The lease that the starter holds on it; null when the attempt existed already. */
  readonly lease: HeldLease | null;
}

/**
 * Records attempt `ordinal` of a job with its plan and absolute deadline, and takes a slot for it, before
 * anything exists outside the database (E1, E2). The same start again returns the same attempt (E3); with
 * another plan it is `plan_conflict`. `no_slot` leaves the job waiting where it was.
 */
export function startExecution(
  db: Database,
  start: {
    readonly tenant: TenantId;
    readonly job: JobId;
    readonly ordinal: number;
    readonly plan: Plan;
    /** The lease on the waiting job. */
    readonly admission: { readonly holder: IncarnationId; readonly epoch: bigint };
    readonly leaseUs: Microseconds;
  },
): Promise<Started> {
  const { tenant, job, ordinal, plan, admission } = start;
  return transition(db, { role: "controller", tenant, name: "startExecution" }, async (tx) => {
    await tx.run(lockLease, { kind: admissionKind, resource: job });
    const row = await lockJob(tx, job);
    await tx.run(joinJobTrace, { job });
    const existing = await tx.run(sql.readAttemptByOrdinal, { job, ordinal });
    if (existing !== undefined) {
      if (existing.plan_digest !== planDigest(plan)) {
        throw new HoldfastError("plan_conflict", `attempt ${ordinal} was started with another plan`);
      }
      return { attempt: existing.attempt_id, deadline: existing.deadline, lease: null };
    }
    await tx.run(assertFence, { kind: admissionKind, resource: job, ...admission });
    if (row.attempts !== ordinal - 1) {
      throw new HoldfastError(
        "conflict",
        `the job has had ${row.attempts} attempts; ${ordinal} is not the next`,
      );
    }
    const attempt = uuidv7();
    const { deadline } = await tx.run(sql.insertAttempt, {
      job,
      ordinal,
      attempt,
      pool: plan.pool,
      plan,
      plan_digest: planDigest(plan),
      deadline_us: BigInt(plan.deadline_us),
    });
    await tx.run(insertPhases, {
      attempt,
      names: plan.phases.map((phase) => phase.name),
      kinds: plan.phases.map((phase) => phase.kind),
    });
    if ((await tx.run(sql.takeSlot, { attempt, pool: plan.pool })) === undefined) {
      throw new HoldfastError("no_slot", `no slot of pool ${plan.pool} is free`);
    }
    await deleteLease(tx, { kind: admissionKind, resource: job });
    const lease = await insertHeldLease(tx, {
      tenant,
      kind: executionKind,
      resource: attempt,
      // Only controllers that have the runtime take it.
      queue: plan.runtime,
      priority: row.priority as LeasePriority,
      dueAt: tx.now,
      holder: admission.holder,
      leaseUs: start.leaseUs,
    });
    await advanceJob(tx, row, "start");
    await recordEvent(tx, attempt, "attempt.started", { plan_digest: planDigest(plan) });
    return { attempt, deadline, lease };
  });
}

/** Everything that decides what happens next, in one consistent look. */
export function readAttemptSnapshot(
  db: Database,
  tenant: TenantId,
  attempt: string,
): Promise<AttemptSnapshot> {
  const seenAtMs = monotonicMs();
  return view(db, { role: "controller", tenant, name: "readAttempt" }, async (tx) => {
    const row = await tx.run(sql.readAttempt, { attempt });
    if (row === undefined) throw new HoldfastError("not_found", "there is no such attempt");
    const phases = await tx.run(listPhases, { attempt });
    const pins = await tx.run(listPins, { attempt });
    const owner = { kind: "execution", id: attempt } as const;
    return {
      now: tx.now,
      seenAtMs,
      tenant,
      job: brandId<JobId>(row.job_id),
      ordinal: row.ordinal,
      attempt,
      state: row.state as AttemptState,
      plan: row.plan as Plan,
      deadline: row.deadline,
      cancelRequested: row.cancel_requested,
      phases: phases.map(phaseOf),
      sandboxes: await listSandboxes(tx, tenant, owner),
      pins: Object.fromEntries(pins.map((pin) => [pin.source, pin.commit_id])),
      artifactDeclared: row.artifact_declared,
      output: await readOutputState(tx, owner),
    };
  });
}

function phaseOf(row: ListPhasesRow): Phase {
  const { number, name } = row;
  return {
    number,
    name,
    kind: row.kind as PhaseKind,
    state: row.state as PhaseState,
    failure: failureOf(row),
  };
}

/** Move the attempt's version and append what happened, for whoever watches its job. */
export async function recordEvent(
  tx: Transaction,
  attempt: string,
  operation: string,
  details: Readonly<Record<string, unknown>>,
): Promise<void> {
  const { job_id, ordinal, resource_version } = await tx.run(sql.touchAttempt, { attempt });
  await tx.run(appendChange, {
    kind: "attempt",
    resource: attempt,
    root: job_id,
    version: resource_version,
    operation,
    body: { job_id, attempt: ordinal, ...details },
  });
}

export interface Finish {
  readonly outcome: Outcome;
  readonly failure: Failure | null;
  /** How long a published artifact is kept (E11). */
  readonly retentionUs: bigint;
  readonly attemptsMax: number;
  readonly queueMax: number;
}

/**
 * Ends an attempt: settles cancellation against publication under the job's lock, so that exactly one wins;
 * publishes the artifact or fails or cancels or queues the one retry; returns the slot (E10, E11, E12). The
 * database refuses it while anything of the attempt is not proven stopped or its output is not stored. Gives
 * the outcome that was recorded, which is `cancelled` when a cancellation came first.
 */
export function finishExecution(db: Database, lease: HeldLease, finish: Finish): Promise<Outcome> {
  return underLease(db, lease, "finishExecution", async (tx) => {
    const attempt = lease.resource;
    const found = await tx.run(sql.readAttempt, { attempt });
    if (found === undefined) throw new HoldfastError("not_found", "there is no such attempt");
    const job = await lockJob(tx, brandId<JobId>(found.job_id));
    const locked = await tx.run(sql.lockAttempt, { attempt });
    if (locked === undefined) throw new HoldfastError("not_found", "there is no such attempt");
    if (locked.state !== "active") return (found.outcome ?? "failed") as Outcome;
    const { overdue } = await tx.run(sql.readOverdue, { attempt });
    const { outcome, failure } = settleOutcome(finish, {
      cancelRequested: job.cancel_requested_at !== null,
      overdue,
    });
    await tx.run(skipPendingPhases, { attempt });
    const { finished_at } = await tx.run(sql.settleAttempt, {
      attempt,
      outcome,
      failure_code: failure?.code ?? null,
      failure_message: failure?.message ?? null,
    });
    const plan = found.plan as Plan;
    if (outcome === "succeeded") {
      await publish(tx, lease, { job: job.job_id, plan }, finished_at, finish.retentionUs);
    }
    await tx.run(sql.returnSlot, { attempt });
    if (outcome === "succeeded") await advanceJob(tx, job, "succeed");
    else if (outcome === "cancelled") await advanceJob(tx, job, "cancel");
    else if (locked.ordinal < finish.attemptsMax && (await admissionHasRoom(tx, finish.queueMax))) {
      await advanceJob(tx, job, { requeue: { pool: plan.pool } });
    } else await advanceJob(tx, job, "fail", failure);
    await recordEvent(tx, attempt, "attempt.finished", { outcome, failure });
    return outcome;
  });
}

/** What is recorded: cancellation comes first, and what ends after the deadline has failed (E10, E12). */
function settleOutcome(
  finish: Finish,
  now: { readonly cancelRequested: boolean; readonly overdue: boolean },
): { readonly outcome: Outcome; readonly failure: Failure | null } {
  if (now.cancelRequested) return { outcome: "cancelled", failure: null };
  switch (finish.outcome) {
    case "cancelled":
      throw new HoldfastError("conflict", "nobody has cancelled the job");
    case "succeeded":
      return now.overdue
        ? { outcome: "failed", failure: deadlineFailure }
        : { outcome: "succeeded", failure: null };
    case "failed": {
      const { code, message } = finish.failure ?? { code: "failed", message: "The attempt failed." };
      return { outcome: "failed", failure: { code, message: message.slice(0, failureMessageLengthMax) } };
    }
    default:
      return finish.outcome satisfies never;
  }
}

/** Only a job with a publish phase has an artifact; a build that publishes nothing may succeed too. */
async function publish(
  tx: Transaction,
  lease: HeldLease,
  { job, plan }: { readonly job: string; readonly plan: Plan },
  publishedAt: Instant,
  retentionUs: bigint,
): Promise<void> {
  const artifact = await tx.run(readDeclaredArtifact, { attempt: lease.resource });
  if (artifact === undefined) {
    if (plan.phases.some(({ kind }) => kind === "publish")) {
      throw new HoldfastError("conflict", "the attempt has declared no artifact");
    }
    return;
  }
  if (artifact.stored_at === null) {
    throw new HoldfastError("conflict", `the artifact ${artifact.name} is not stored`);
  }
  await tx.run(publishArtifact, {
    job,
    name: artifact.name,
    blob_key: artifact.blob_key,
    bytes: artifact.bytes,
    sha256: artifact.sha256,
    media_type: artifact.media_type,
    manifest: artifact.manifest,
    published_at: publishedAt,
    retention_us: microseconds(retentionUs),
  });
  await insertLease(tx, { kind: retentionKind, resource: job, dueAt: instant(publishedAt + retentionUs) });
}

/** A tenant's completed attempts that are not cleaned yet, oldest first (E14). */
export function listExecutionsToClean(
  db: Database,
  tenant: TenantId,
  limit: number,
): Promise<sql.ListExecutionsToCleanRow[]> {
  return view(db, { role: "controller", tenant, name: "listExecutionsToClean" }, (tx) =>
    tx.run(sql.listExecutionsToClean, { limit: BigInt(limit) }),
  );
}

/**
 * Everything of it outside is gone, by UID, and its partial artifacts with it (E14). Its lease goes too; plan,
 * UIDs and outcome stay.
 */
export function markExecutionCleaned(db: Database, lease: HeldLease): Promise<void> {
  return underLease(db, lease, "markExecutionCleaned", async (tx) => {
    const attempt = await tx.run(sql.lockAttempt, { attempt: lease.resource });
    if (attempt?.state === "active") throw new HoldfastError("conflict", "the attempt has not ended yet");
    const [leftover] = await tx.run(sql.listLeftovers, { attempt: lease.resource });
    if (leftover !== undefined) throw new HoldfastError("conflict", `${leftover.name} is not removed yet`);
    const marked = await tx.run(sql.markExecutionCleaned, { attempt: lease.resource });
    if (marked === 1) await recordEvent(tx, lease.resource, "attempt.cleaned", {});
    await deleteLease(tx, lease);
  });
}
