import { HoldfastError } from "../core/errors.ts";
import { brandId, type SandboxId, uuidv7 } from "../core/ids.ts";
import type { HeldLease } from "../core/lease.ts";
import type { Database, Transaction } from "../core/postgres/transition.ts";
import { type SandboxRecords, sandboxRecords } from "../sandboxes/record.store.ts";
import * as sandboxes from "../sandboxes/sandbox.store.ts";
import { sandboxName } from "../sandboxes/sandbox.ts";
import { lockAttempt } from "./attempt.sql.ts";
import { recordEvent, underLease } from "./attempt.store.ts";
import { type AttemptSnapshot, type EndedPhase, failureMessageLengthMax, type NextPhase } from "./attempt.ts";
import { joinJobTrace } from "./job.sql.ts";
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
    const { traceparent } = await tx.run(joinJobTrace, { job: snapshot.job });
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
        traceparent,
      }),
      deadline: snapshot.deadline,
    });
    if (started === 1)
      await recordEvent(tx, attempt, "phase.started", { phase: phase.name, kind: phase.kind });
    await recordEvent(tx, attempt, "sandbox.planned", { phase: phase.name, sandbox: name });
  });
}

/** Each step of an attempt's sandboxes, as the database keeps it. */
export function attemptRecords(db: Database, lease: HeldLease): SandboxRecords {
  const attempt = lease.resource;
  return sandboxRecords({
    db,
    lease,
    lockActive: (tx) => lockActive(tx, attempt),
    lock: async (tx) => {
      await tx.run(lockAttempt, { attempt });
    },
    event: (tx, operation, sandbox, details) =>
      recordEvent(tx, attempt, operation, { phase: sandbox.step, sandbox: sandbox.name, ...details }),
  });
}

type Record = <Args extends unknown[], Result>(
  of: (records: SandboxRecords) => (...args: Args) => Result,
) => (db: Database, lease: HeldLease, ...args: Args) => Result;
const record: Record =
  (of) =>
  (db, lease, ...args) =>
    of(attemptRecords(db, lease))(...args);

// One at a time, for whoever holds a lease and no attendance.
export const recordResource = record((records) => records.held);
export const recordRelease = record((records) => records.released);
export const recordStopping = record((records) => records.stopping);
export const recordStopped = record((records) => records.stopped);
export const recordUnproven = record((records) => records.unproven);
export const recordRemoved = record((records) => records.removed);
export const appendProgress = record((records) => records.appendLog);
export const readSandboxLog = record((records) => records.readLog);
export const readLogRoom = record((records) => records.readLogRoom);
export const recordLogEnd = record((records) => records.logEnded);
