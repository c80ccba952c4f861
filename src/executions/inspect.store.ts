import { HoldfastError } from "../core/errors.ts";
import { brandId, type JobId } from "../core/ids.ts";
import type { Transaction } from "../core/postgres/transition.ts";
import { formatInstant, type Instant } from "../core/time.ts";
import type {
  ArtifactView,
  AttemptPlanView,
  AttemptView,
  LogArchiveView,
  PhaseView,
  PlanView,
  SandboxView,
} from "../wire/job.ts";
import { failureOf } from "./attempt.ts";
import {
  type ListArtifactsRow,
  type ListAttemptSandboxesRow,
  type ListAttemptsRow,
  type ListPhasesRow,
  type ListPinsRow,
  listArtifacts,
  listAttemptSandboxes,
  listAttempts,
  listPhases,
  listPins,
  type ReadArtifactRow,
  readActiveRuntime,
  readArtifact,
  readPlan,
} from "./inspect.sql.ts";
import { getJob, type JobRow } from "./job.store.ts";

/** `not_found` when there is no such job. A job that never started has none. */
export async function inspectAttempts(tx: Transaction, job: JobId): Promise<AttemptView[]> {
  await getJob(tx, job);
  const rows = await tx.run(listAttempts, { job });
  const attempts = rows.map(({ attempt_id }) => attempt_id);
  const phases = await tx.run(listPhases, { attempts });
  const pins = await tx.run(listPins, { attempts });
  const sandboxes = await tx.run(listAttemptSandboxes, { attempts });
  return rows.map((row) =>
    attemptView(row, {
      phases: phases.filter(({ attempt_id }) => attempt_id === row.attempt_id),
      pins: pins.filter(({ attempt_id }) => attempt_id === row.attempt_id),
      sandboxes: sandboxes.filter(({ owner_id }) => owner_id === row.attempt_id),
    }),
  );
}

export async function inspectAttempt(tx: Transaction, job: JobId, ordinal: number): Promise<AttemptView> {
  const found = (await inspectAttempts(tx, job)).find(({ attempt }) => attempt === ordinal);
  if (found === undefined) throw new HoldfastError("not_found", "there is no such attempt");
  return found;
}

/** The runtime without which a job does not go on: any for one that waits, none for one that is over. */
export async function neededRuntime(tx: Transaction, job: JobRow): Promise<string | null | undefined> {
  if (job.state === "queued") return null;
  if (job.state !== "running") return undefined;
  return (await tx.run(readActiveRuntime, { job: brandId<JobId>(job.job_id) }))?.runtime;
}

/** What it was going to do, whatever has become of it since (E14). */
export async function inspectPlan(tx: Transaction, job: JobId, ordinal: number): Promise<AttemptPlanView> {
  const row = await tx.run(readPlan, { job, ordinal });
  if (row === undefined) throw new HoldfastError("not_found", "there is no such attempt");
  return { job_id: job, attempt: ordinal, plan_digest: row.plan_digest, plan: row.plan as PlanView };
}

export async function inspectArtifacts(tx: Transaction, job: JobId): Promise<ArtifactView[]> {
  await getJob(tx, job);
  return (await tx.run(listArtifacts, { job })).map(artifactView);
}

/** Where its bytes are. `gone` after its retention ended. */
export async function findArtifact(tx: Transaction, job: JobId, name: string): Promise<ReadArtifactRow> {
  const row = await tx.run(readArtifact, { job, name });
  if (row === undefined) throw new HoldfastError("not_found", "there is no such artifact");
  if (row.removed_at !== null) {
    throw new HoldfastError("gone", `the artifact was removed at ${formatInstant(row.removed_at)}`);
  }
  return row;
}

// What the database's own check constraints hold is asserted here, at the one place where rows become views.

const at = (time: Instant | null) => (time === null ? null : formatInstant(time));

export function attemptView(
  row: ListAttemptsRow,
  parts: {
    readonly phases: readonly ListPhasesRow[];
    readonly pins: readonly ListPinsRow[];
    readonly sandboxes: readonly ListAttemptSandboxesRow[];
  },
): AttemptView {
  return {
    id: row.attempt_id,
    job_id: row.job_id,
    attempt: row.ordinal,
    state: row.state as AttemptView["state"],
    outcome: row.outcome as AttemptView["outcome"],
    failure: failureOf(row),
    pool: row.pool,
    plan_digest: row.plan_digest,
    started_at: formatInstant(row.started_at),
    deadline: formatInstant(row.deadline),
    finished_at: at(row.finished_at),
    cleaned_at: at(row.cleaned_at),
    resource_version: String(row.resource_version),
    phases: parts.phases.map(phaseView),
    pins: Object.fromEntries(parts.pins.map(({ source, commit_id }) => [source, commit_id])),
    sandboxes: parts.sandboxes.map(sandboxView),
    log: logView(row),
  };
}

function logView(row: ListAttemptsRow): LogArchiveView | null {
  const { log_lines, log_bytes, log_sha256, log_archived_at, log_retain_until, log_removed_at } = row;
  if (log_lines === null || log_bytes === null || log_sha256 === null) return null;
  if (log_archived_at === null || log_retain_until === null) return null;
  return {
    lines: Number(log_lines),
    bytes: Number(log_bytes),
    sha256: log_sha256,
    archived_at: formatInstant(log_archived_at),
    retain_until: formatInstant(log_retain_until),
    removed_at: at(log_removed_at),
  };
}

function phaseView(row: ListPhasesRow): PhaseView {
  return {
    name: row.name,
    kind: row.kind as PhaseView["kind"],
    state: row.state as PhaseView["state"],
    started_at: at(row.started_at),
    finished_at: at(row.finished_at),
    progress:
      row.progress_message === null ? null : { message: row.progress_message, percent: row.progress_percent },
    failure: failureOf(row),
    result: row.result as PhaseView["result"],
  };
}

function sandboxView(row: ListAttemptSandboxesRow): SandboxView {
  return {
    id: row.sandbox_id,
    phase: row.step,
    name: row.name,
    runtime: row.runtime,
    uid: row.uid,
    state: row.state as SandboxView["state"],
    planned_at: formatInstant(row.planned_at),
    held_at: at(row.held_at),
    released_at: at(row.released_at),
    stopping_at: at(row.stopping_at),
    stop_reason: row.stop_reason,
    stopped_at: at(row.stopped_at),
    stop_proof: row.stop_proof,
    removed_at: at(row.removed_at),
    outcome: row.outcome,
    exit_code: row.exit_code,
    message: row.outcome_message,
    overridden_by: row.overridden_by,
    stop_unproven:
      row.stop_unproven_at === null
        ? null
        : { since: formatInstant(row.stop_unproven_at), reason: row.stop_unproven_reason ?? "" },
    log_bytes: Number(row.log_bytes),
    log_truncated: row.log_truncated_at !== null,
  };
}

function artifactView(row: ListArtifactsRow): ArtifactView {
  return {
    job_id: row.job_id,
    name: row.name,
    bytes: Number(row.bytes),
    sha256: row.sha256,
    media_type: row.media_type,
    published_at: formatInstant(row.published_at),
    retain_until: formatInstant(row.retain_until),
    removed_at: at(row.removed_at),
    files: row.manifest as ArtifactView["files"],
  };
}
