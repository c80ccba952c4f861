import { brandId, type PrincipalId, type SandboxId, type TenantId } from "../core/ids.ts";
import type { Transaction } from "../core/postgres/transition.ts";
import type { SandboxOutcome, SandboxSpec } from "../core/runtime.port.ts";
import { type Instant, microseconds } from "../core/time.ts";
import * as sql from "./sandbox.sql.ts";
import type { Sandbox, SandboxOwner, SandboxState } from "./sandbox.ts";
import { sandboxSpecDigest } from "./sandbox.ts";

/** Commit a sandbox to be: from here on the row owns its name. */
export async function planSandbox(
  tx: Transaction,
  sandbox: {
    readonly id: SandboxId;
    readonly owner: SandboxOwner;
    readonly step: string;
    readonly ordinal: number;
    readonly name: string;
    readonly runtime: string;
    readonly spec: SandboxSpec;
    readonly deadline: Instant;
  },
): Promise<void> {
  await tx.run(sql.insertSandbox, {
    sandbox: sandbox.id,
    owner_kind: sandbox.owner.kind,
    owner: sandbox.owner.id,
    step: sandbox.step,
    ordinal: sandbox.ordinal,
    name: sandbox.name,
    runtime: sandbox.runtime,
    spec: { ...sandbox.spec, grace: String(sandbox.spec.grace) },
    spec_digest: sandboxSpecDigest(sandbox.spec),
    deadline: sandbox.deadline,
  });
}

export async function listSandboxes(
  tx: Transaction,
  tenant: TenantId,
  owner: SandboxOwner,
): Promise<Sandbox[]> {
  const rows = await tx.run(sql.listSandboxes, { owner_kind: owner.kind, owner: owner.id });
  return rows.map((row) => ({
    id: brandId<SandboxId>(row.sandbox_id),
    tenant,
    owner,
    step: row.step,
    ordinal: row.ordinal,
    name: row.name,
    runtime: row.runtime,
    state: row.state as SandboxState,
    uid: row.uid,
    deadline: row.deadline,
    plannedAt: row.planned_at,
    releasedAt: row.released_at,
    stoppedAt: row.stopped_at,
    removedAt: row.removed_at,
    stopReason: row.stop_reason,
    outcome: row.outcome,
    exitCode: row.exit_code,
    message: row.outcome_message,
    unprovenSince: row.stop_unproven_at,
    log: {
      position: row.log_cursor,
      seq: row.log_seq,
      bytes: row.log_bytes,
      truncated: row.log_truncated,
      settled: row.log_settled,
    },
  }));
}

export async function readSandboxSpec(
  tx: Transaction,
  sandbox: SandboxId,
): Promise<{ spec: SandboxSpec; digest: string }> {
  const row = await tx.run(sql.readSandboxSpec, { sandbox });
  const stored = row.spec as Omit<SandboxSpec, "grace"> & { readonly grace: string };
  return { spec: { ...stored, grace: microseconds(BigInt(stored.grace)) }, digest: row.spec_digest };
}

/** Whether the row moved. False: it was not in a state that this move starts from, and nothing changed. */
type Moved = Promise<boolean>;
const moved = async (count: Promise<number>): Moved => (await count) === 1;

export const holdSandbox = (tx: Transaction, sandbox: SandboxId, uid: string): Moved =>
  moved(tx.run(sql.holdSandbox, { sandbox, uid }));

export const releaseSandbox = (tx: Transaction, sandbox: SandboxId): Moved =>
  moved(tx.run(sql.releaseSandbox, { sandbox }));

export const stopSandbox = (tx: Transaction, sandbox: SandboxId, reason: string): Moved =>
  moved(tx.run(sql.stopSandbox, { sandbox, reason }));

export const proveSandboxStopped = (
  tx: Transaction,
  sandbox: SandboxId,
  outcome: SandboxOutcome,
  proof: string,
): Moved =>
  moved(
    tx.run(sql.proveSandboxStopped, {
      sandbox,
      proof: proof.slice(0, 1000),
      outcome: outcome.kind,
      exit_code: outcome.exitCode,
      message: outcome.message.slice(0, 1000),
    }),
  );

export const markStopUnproven = (tx: Transaction, sandbox: SandboxId, reason: string): Moved =>
  moved(tx.run(sql.markStopUnproven, { sandbox, reason: reason.slice(0, 1000) }));

export const clearStopUnproven = (tx: Transaction, sandbox: SandboxId): Moved =>
  moved(tx.run(sql.clearStopUnproven, { sandbox }));

/** An operator's word in place of a proof. Only while its stop is unproven. */
export const overrideStop = (
  tx: Transaction,
  sandbox: SandboxId,
  by: { readonly principal: PrincipalId; readonly message: string },
): Moved =>
  moved(tx.run(sql.overrideStop, { sandbox, principal: by.principal, message: by.message.slice(0, 1000) }));

export const removeSandbox = (tx: Transaction, sandbox: SandboxId): Moved =>
  moved(tx.run(sql.removeSandbox, { sandbox }));
