import { isHoldfastError } from "../../src/core/errors.ts";
import { brandId, type SandboxId } from "../../src/core/ids.ts";
import { renewLeases } from "../../src/core/lease.sql.ts";
import { claimLeases, returnLease } from "../../src/core/lease.store.ts";
import type { HeldLease } from "../../src/core/lease.ts";
import { type Database, transition } from "../../src/core/postgres/transition.ts";
import { instant } from "../../src/core/time.ts";
import { claimWaiting } from "../../src/executions/admission.store.ts";
import {
  executionKind,
  finishExecution,
  markExecutionCleaned,
  startExecution,
  underLease,
} from "../../src/executions/attempt.store.ts";
import type { AttemptSnapshot, Phase } from "../../src/executions/attempt.ts";
import { cancelJob, patchJob } from "../../src/executions/job.store.ts";
import {
  advancePhase,
  appendProgress,
  recordLogEnd,
  recordRelease,
  recordRemoved,
  recordResource,
  recordStopped,
  recordStopping,
} from "../../src/executions/phase.store.ts";
import { recordSourcePins } from "../../src/executions/report.store.ts";
import type { Sandbox } from "../../src/sandboxes/sandbox.ts";
import type { StopReason } from "../../src/sandboxes/step.ts";
import { commit, outcomeOf } from "./attempts.ts";
import { type JobModel, knownAdvance, modelPhases, nextOrdinal, type Operation } from "./job-model.ts";
import { type JobWorld, passedSeconds, type StoredJob } from "./job-world.ts";
import { adHoc, tenantA } from "./kernel.ts";

const far = instant(253_370_764_800_000_000n);
const tenant = tenantA;

/**
 * The real operation, as somebody would do it who saw the job as `known`. Gives `ok`, what it found, or the code
 * of its refusal, in the words of the model.
 */
export async function perform(
  world: JobWorld,
  db: Database,
  operation: Operation,
  known: StoredJob,
): Promise<string> {
  try {
    return await act(world, db, operation, known);
  } catch (error) {
    if (isHoldfastError(error)) return error.code;
    throw error;
  }
}

async function act(world: JobWorld, db: Database, operation: Operation, known: StoredJob): Promise<string> {
  const { job, plan, model } = known;
  const as = (role: "gateway" | "dispatcher") => ({
    role,
    tenant: role === "gateway" ? tenant : null,
    name: operation,
  });
  switch (operation) {
    case "start": {
      const started = await startExecution(db, {
        tenant,
        job,
        ordinal: nextOrdinal(model),
        plan,
        admission: { holder: world.holders.one, epoch: known.admissionEpoch },
        leaseUs: world.leaseUs,
      });
      return started.lease === null ? "existing" : "started";
    }
    case "admit": {
      const claim = { pool: plan.pool, holder: world.holders.two, limit: 1, leaseUs: world.leaseUs };
      return (await claimWaiting(db, claim)).length === 1 ? "taken" : "none";
    }
    case "lease": {
      const claimed = await claimLeases(db, {
        kind: executionKind,
        queue: plan.runtime,
        holder: world.holders.two,
        limit: 1,
        quota: 1,
        leaseUs: world.leaseUs,
      });
      return claimed.length === 1 ? "taken" : "none";
    }
    case "cancel":
      await transition(db, { ...as("gateway"), tenant }, (tx) => cancelJob(tx, { job, reason: "a test" }));
      return "ok";
    case "patch":
      await transition(db, { ...as("gateway"), tenant }, (tx) =>
        patchJob(tx, { job, patch: { priority: 1 } }),
      );
      return "ok";
    case "deadline":
      await transition(db, as("dispatcher"), (tx) => tx.run(moveClock, { p1: passedSeconds }));
      return "ok";
    case "renew": {
      const { resource, epoch } = leaseOf(world, known);
      const [row] = await transition(db, as("dispatcher"), (tx) =>
        tx.run(renewLeases, {
          holder: world.holders.one,
          tenants: [tenant],
          kinds: [executionKind],
          resources: [resource],
          epochs: [epoch],
          lease_us: world.leaseUs,
        }),
      );
      return row?.state ?? "nothing";
    }
    case "pins":
      await recordSourcePins(
        db,
        { tenant, sandbox: sandboxOf(known).id, deadline: far },
        { pins: { engine: commit } },
      );
      return "ok";
    case "return":
    case "hold":
    case "release":
    case "stop":
    case "prove":
    case "append":
    case "drain":
    case "advance":
    case "finish succeeded":
    case "finish failed":
    case "remove":
    case "clean":
      return actUnderLease(db, operation, known, leaseOf(world, known));
    default:
      return operation satisfies never;
  }
}

const moveClock = adHoc<unknown>("select test.set_clock($1)", ["p1"]);

async function actUnderLease(
  db: Database,
  operation: Exclude<
    Operation,
    "start" | "admit" | "lease" | "cancel" | "patch" | "deadline" | "renew" | "pins"
  >,
  known: StoredJob,
  lease: HeldLease,
): Promise<string> {
  switch (operation) {
    case "return":
      await underLease(db, lease, "return", (tx) => returnLease(tx, lease, tx.now));
      return "ok";
    case "advance":
      await advancePhase(db, lease, snapshotOf(known), stepOf(known.model), "test");
      return "ok";
    case "finish succeeded":
    case "finish failed":
      return finishExecution(db, lease, {
        outcome: operation === "finish failed" ? "failed" : "succeeded",
        failure: operation === "finish failed" ? { code: "phase_failed", message: "a test" } : null,
        retentionUs: 3_600_000_000n,
        attemptsMax: 2,
        queueMax: 1_000_000,
      });
    case "clean":
      await markExecutionCleaned(db, lease);
      return "ok";
    case "hold": {
      const sandbox = sandboxOf(known);
      await recordResource(db, lease, sandbox, `uid-of-${sandbox.name}`);
      return "ok";
    }
    case "release":
      await recordRelease(db, lease, sandboxOf(known));
      return "ok";
    case "stop": {
      const reason: StopReason = known.model.cancelRequested ? "cancelled" : "deadline";
      await recordStopping(db, lease, sandboxOf(known), reason);
      return "ok";
    }
    case "prove":
      await recordStopped(db, lease, sandboxOf(known), outcomeOf("exited"), "a test saw it");
      return "ok";
    case "append": {
      const chunks = [{ stream: "stdout", at: instant(0n), text: "a line\n" }] as const;
      const afterSeq = BigInt(known.model.attempts.at(-1)?.sandboxes.at(-1)?.chunks ?? 0);
      const append = { afterSeq, position: null, chunks, truncated: false };
      return (await appendProgress(db, lease, sandboxOf(known).id, append)) ? "ok" : "nothing";
    }
    case "drain":
      await recordLogEnd(db, lease, sandboxOf(known).id, null);
      return "ok";
    case "remove":
      await recordRemoved(db, lease, sandboxOf(known));
      return "ok";
    default:
      return operation satisfies never;
  }
}

/** Its running phase has failed, and nothing follows. */
export async function failPhase(world: JobWorld, known: StoredJob): Promise<void> {
  const { ended } = stepOf(known.model);
  if (ended === null) throw new Error("no phase runs");
  const failure = { code: "phase_failed", message: "a test" };
  const step = { ended: { ...ended, state: "failed", failure }, next: null } as const;
  await advancePhase(world.bench.db, leaseOf(world, known), snapshotOf(known), step, "test");
}

/** The lease on the last attempt, as `one` has it or had it. */
export function leaseOf(world: JobWorld, known: StoredJob): HeldLease {
  const attempt = known.attempts.at(-1);
  if (attempt === undefined) throw new Error("it knows no attempt");
  const { id, epoch } = attempt;
  const holder = world.holders.one;
  return { tenant, kind: executionKind, resource: id, holder, epoch, expiresAt: far, heldUntilMs: Infinity };
}

/** What the store functions take from it; the rest decides nothing in them. */
function sandboxOf(known: StoredJob): Sandbox {
  const attempt = known.attempts.at(-1);
  const sandbox = attempt?.sandboxes.at(-1);
  if (attempt === undefined || sandbox === undefined) throw new Error("it knows no sandbox");
  return {
    id: brandId<SandboxId>(sandbox.id),
    tenant,
    owner: { kind: "execution", id: attempt.id },
    step: sandbox.step,
    ordinal: 1,
    name: sandbox.name,
    runtime: known.plan.runtime,
    state: "planned",
    uid: null,
    deadline: far,
    plannedAt: far,
    releasedAt: null,
    stoppedAt: null,
    removedAt: null,
    stopReason: null,
    outcome: null,
    exitCode: null,
    message: null,
    unprovenSince: null,
    log: { position: null, seq: 0n, bytes: 0n, truncated: false, settled: false },
  };
}

function snapshotOf({ job, plan, model, attempts }: StoredJob): AttemptSnapshot {
  return {
    now: instant(0n),
    seenAtMs: 0,
    tenant,
    job,
    ordinal: model.attempts.length,
    attempt: attempts.at(-1)?.id ?? "",
    state: "active",
    plan,
    deadline: far,
    cancelRequested: model.cancelRequested,
    phases: [],
    sandboxes: [],
    pins: model.attempts.at(-1)?.pins === true ? { engine: commit } : {},
    artifactDeclared: false,
    output: "stored",
  };
}

function stepOf(model: JobModel): Parameters<typeof advancePhase>[3] {
  const { ended, next } = knownAdvance(model) ?? { ended: null, next: null };
  const phase = (at: number): Phase => {
    const planned = modelPhases[at];
    if (planned === undefined) throw new Error("the plan has no such phase");
    return { number: at + 1, ...planned, state: "pending", failure: null };
  };
  return {
    ended: ended === null ? null : { phase: phase(ended), state: "succeeded", failure: null },
    next: next === null ? null : { phase: phase(next), planned: plannedPhase(phase(next)), ordinal: 1 },
  };
}

function plannedPhase({ name, kind }: Phase) {
  const limits = { cpu_millicores: 1000, memory_bytes: 1_073_741_824, disk_bytes: 4_294_967_296 };
  return { name, kind, command: ["true"], env: {}, secrets: {}, image: null, grace_us: "10000000", limits };
}
