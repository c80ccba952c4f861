import { HoldfastError } from "../core/errors.ts";
import { brandId, type SandboxId, uuidv7 } from "../core/ids.ts";
import type { HeldLease } from "../core/lease.ts";
import { type Database, type Transaction, view } from "../core/postgres/transition.ts";
import type { SandboxOutcome } from "../core/runtime.port.ts";
import * as logs from "../sandboxes/log.store.ts";
import type { LogChunk } from "../sandboxes/log.ts";
import type { LogRoom } from "../sandboxes/log-room.ts";
import * as sandboxes from "../sandboxes/sandbox.store.ts";
import { type LogProgress, type Sandbox, sandboxName } from "../sandboxes/sandbox.ts";
import { lockAttempt } from "./attempt.sql.ts";
import { recordEvent, underLease } from "./attempt.store.ts";
import {
  type AttemptSnapshot,
  type EndedPhase,
  failureMessageLengthMax,
  type NextPhase,
  type StopReason,
} from "./attempt.ts";
import * as sql from "./phase.sql.ts";
import { sandboxSpecOf } from "./plan.ts";

/** The attempt's row, locked until commit, as parent before its sandboxes. */
async function lockActive(tx: Transaction, attempt: string): Promise<void> {
  const row = await tx.run(lockAttempt, { attempt });
  if (row?.state !== "active") throw new HoldfastError("conflict", "the attempt has ended");
}

/**
 * Ends the running phase and plans the sandbox of the next one, in one transition. The database refuses it
 * while another sandbox of the attempt is alive (E8) or, from the compile phase on, while a pin is missing (E9).
 */
export function advancePhase(
  db: Database,
  lease: HeldLease,
  snapshot: AttemptSnapshot,
  step: { readonly ended: EndedPhase | null; readonly next: NextPhase | null },
  installation: string,
): Promise<void> {
  return underLease(db, lease, "advancePhase", async (tx) => {
    const attempt = lease.resource;
    await lockActive(tx, attempt);
    if (step.ended !== null) {
      const { phase, state, failure } = step.ended;
      const ended = await tx.run(sql.endPhase, {
        attempt,
        phase: phase.name,
        state,
        failure_code: failure?.code ?? null,
        failure_message: failure?.message.slice(0, failureMessageLengthMax) ?? null,
      });
      if (ended === 1) await recordEvent(tx, attempt, `phase.${state}`, { phase: phase.name, failure });
    }
    if (step.next === null) return;
    const { phase, planned, ordinal } = step.next;
    const started = await tx.run(sql.startPhase, { attempt, phase: phase.name });
    const owner = { kind: "execution", id: attempt } as const;
    const name = sandboxName({ installation, tenant: lease.tenant, owner, step: phase.name, ordinal });
    await sandboxes.planSandbox(tx, {
      id: brandId<SandboxId>(uuidv7()),
      owner,
      step: phase.name,
      ordinal,
      name,
      runtime: snapshot.plan.runtime,
      spec: sandboxSpecOf(snapshot.plan, planned, {
        job: snapshot.job,
        ordinal: snapshot.ordinal,
        pins: snapshot.pins,
      }),
      deadline: snapshot.deadline,
    });
    if (started === 1)
      await recordEvent(tx, attempt, "phase.started", { phase: phase.name, kind: phase.kind });
    await recordEvent(tx, attempt, "sandbox.planned", { phase: phase.name, sandbox: name });
  });
}

/** The UID that the outside gave, committed before anything may start. A second one is refused (E7). */
export function recordResource(db: Database, lease: HeldLease, sandbox: Sandbox, uid: string): Promise<void> {
  return moveSandbox(db, lease, sandbox, "sandbox.held", { uid }, async (tx) => {
    if (await sandboxes.holdSandbox(tx, sandbox.id, uid)) return true;
    const current = (await sandboxes.listSandboxes(tx, lease.tenant, sandbox.owner)).find(
      (own) => own.id === sandbox.id,
    );
    if (current?.uid === uid) return false;
    throw new HoldfastError(
      "uid_conflict",
      `${sandbox.name} has the UID ${current?.uid ?? "of nobody"} recorded`,
    );
  });
}

/** From this commit on the sandbox may run, so this is its one start in the record. */
export function recordRelease(db: Database, lease: HeldLease, sandbox: Sandbox): Promise<void> {
  return moveSandbox(db, lease, sandbox, "sandbox.released", {}, (tx) =>
    sandboxes.releaseSandbox(tx, sandbox.id),
  );
}

/** From this commit on it must end, and reports of its own are refused. */
export function recordStopping(
  db: Database,
  lease: HeldLease,
  sandbox: Sandbox,
  reason: StopReason,
): Promise<void> {
  return moveSandbox(db, lease, sandbox, "sandbox.stopping", { reason }, (tx) =>
    sandboxes.stopSandbox(tx, sandbox.id, reason),
  );
}

/** It has stopped, with the evidence. */
export function recordStopped(
  db: Database,
  lease: HeldLease,
  sandbox: Sandbox,
  outcome: SandboxOutcome,
  proof: string,
): Promise<void> {
  const { kind, exitCode, message } = outcome;
  return moveSandbox(
    db,
    lease,
    sandbox,
    "sandbox.stopped",
    { outcome: kind, exit_code: exitCode, message },
    (tx) => sandboxes.proveSandboxStopped(tx, sandbox.id, outcome, proof),
  );
}

/** The world can't be asked whether it has stopped: the slot stays taken, and people see why. */
export function recordUnproven(
  db: Database,
  lease: HeldLease,
  sandbox: Sandbox,
  reason: string,
): Promise<void> {
  return moveSandbox(db, lease, sandbox, "sandbox.stop_unproven", { reason: reason.slice(0, 1000) }, (tx) =>
    sandboxes.markStopUnproven(tx, sandbox.id, reason),
  );
}

function moveSandbox(
  db: Database,
  lease: HeldLease,
  sandbox: Sandbox,
  operation: string,
  details: Readonly<Record<string, unknown>>,
  move: (tx: Transaction) => Promise<boolean>,
): Promise<void> {
  return underLease(db, lease, operation, async (tx) => {
    await lockActive(tx, lease.resource);
    if (await move(tx)) {
      await recordEvent(tx, lease.resource, operation, {
        phase: sandbox.step,
        sandbox: sandbox.name,
        ...details,
      });
    }
  });
}

/** After the attempt has finished: this object is gone outside. */
export function recordRemoved(db: Database, lease: HeldLease, sandbox: Sandbox): Promise<void> {
  return underLease(db, lease, "sandbox.removed", async (tx) => {
    await tx.run(lockAttempt, { attempt: lease.resource });
    if (await sandboxes.removeSandbox(tx, sandbox.id)) {
      await recordEvent(tx, lease.resource, "sandbox.removed", {
        phase: sandbox.step,
        sandbox: sandbox.name,
      });
    }
  });
}

/** Output, in order, under the lease (E6); a replay changes nothing (E15). */
export function appendProgress(
  db: Database,
  lease: HeldLease,
  sandbox: SandboxId,
  append: {
    readonly afterSeq: bigint;
    readonly position: string | null;
    readonly chunks: readonly LogChunk[];
    readonly truncated: boolean;
  },
): Promise<boolean> {
  return underLease(db, lease, "appendProgress", (tx) => logs.appendProgress(tx, sandbox, append));
}

/** How far a sandbox's output is stored. */
export function readSandboxLog(db: Database, lease: HeldLease, sandbox: SandboxId): Promise<LogProgress> {
  return view(db, { role: "controller", tenant: lease.tenant, name: "readSandboxLog" }, (tx) =>
    logs.readLogProgress(tx, sandbox),
  );
}

/** What of the attempt's bound its sandboxes have left (E15). They run one after the other. */
export function readLogRoom(
  db: Database,
  lease: HeldLease,
  sandbox: SandboxId,
  bytesMax: bigint,
): Promise<LogRoom> {
  return view(db, { role: "controller", tenant: lease.tenant, name: "readLogRoom" }, (tx) =>
    logs.readLogRoom(tx, sandbox, bytesMax),
  );
}

/** All of it is stored, or why the rest can't be had. */
export function recordLogEnd(
  db: Database,
  lease: HeldLease,
  sandbox: SandboxId,
  lost: string | null,
): Promise<void> {
  return underLease(db, lease, "recordLogEnd", (tx) =>
    lost === null ? logs.completeLog(tx, sandbox) : logs.loseLog(tx, sandbox, lost),
  );
}
