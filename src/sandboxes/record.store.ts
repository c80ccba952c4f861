import { HoldfastError } from "../core/errors.ts";
import type { SandboxId } from "../core/ids.ts";
import { underLease } from "../core/lease.store.ts";
import type { HeldLease } from "../core/lease.ts";
import { type Database, type Transaction, view } from "../core/postgres/transition.ts";
import type { SandboxOutcome } from "../core/runtime.port.ts";
import type { StoreLog } from "./collector.ts";
import * as logs from "./log.store.ts";
import type { LogRoom } from "./log-room.ts";
import * as sandboxes from "./sandbox.store.ts";
import type { LogProgress, Sandbox } from "./sandbox.ts";
import type { SandboxStop } from "./step.ts";

/** Who owns sandboxes, as far as their record needs it. */
export interface SandboxOwnership {
  readonly db: Database;
  /** The lease under which the owner's sandboxes are moved. A stale one changes nothing (E6). */
  readonly lease: HeldLease;
  /** Lock the owner's row until commit, as parent before its sandboxes; throws when it has ended. */
  readonly lockActive: (tx: Transaction) => Promise<void>;
  /** The same for an owner that may have ended: only what is over is removed then. */
  readonly lock: (tx: Transaction) => Promise<void>;
  /** Append what happened to the change log. */
  readonly event: (
    tx: Transaction,
    operation: string,
    sandbox: Sandbox,
    details: Readonly<Record<string, unknown>>,
  ) => Promise<void>;
}

/** Each step of a sandbox's life as the database keeps it, under the owner's lease and with its change. */
export interface SandboxRecords {
  /** The UID that the outside gave, committed before anything may start. A second one is refused (E7). */
  readonly held: (sandbox: Sandbox, uid: string) => Promise<void>;
  /** From this commit on the sandbox may run, so this is its one start in the record. */
  readonly released: (sandbox: Sandbox) => Promise<void>;
  /** From this commit on it must end, and reports of its own are refused. */
  readonly stopping: (sandbox: Sandbox, reason: SandboxStop) => Promise<void>;
  /** It has stopped, with the evidence. */
  readonly stopped: (sandbox: Sandbox, outcome: SandboxOutcome, proof: string) => Promise<void>;
  /** The world can't be asked whether it has stopped: people see since when, and why. */
  readonly unproven: (sandbox: Sandbox, reason: string) => Promise<void>;
  /** The world can be asked again, and it has not stopped: nobody may take an operator's word for it any more. */
  readonly answered: (sandbox: Sandbox) => Promise<void>;
  /** This object is gone outside. */
  readonly removed: (sandbox: Sandbox) => Promise<void>;
  /** Output, in order; a replay changes nothing (E15). */
  readonly appendLog: (sandbox: SandboxId, append: Parameters<StoreLog>[0]) => Promise<boolean>;
  /** How far a sandbox's output is stored. */
  readonly readLog: (sandbox: SandboxId) => Promise<LogProgress>;
  /** What of the owner's bound its sandboxes have left. They run one after the other. */
  readonly readLogRoom: (sandbox: SandboxId, bytesMax: bigint) => Promise<LogRoom>;
  /** All of its output is stored, or why the rest can't be had. */
  readonly logEnded: (sandbox: SandboxId, lost: string | null) => Promise<void>;
}

export function sandboxRecords(owner: SandboxOwnership): SandboxRecords {
  const { db, lease } = owner;
  const scope = { role: "controller", tenant: lease.tenant } as const;

  function move(
    sandbox: Sandbox,
    operation: string,
    details: Readonly<Record<string, unknown>>,
    change: (tx: Transaction) => Promise<boolean>,
    lock = owner.lockActive,
  ): Promise<void> {
    return underLease(db, lease, operation, async (tx) => {
      await lock(tx);
      if (await change(tx)) await owner.event(tx, operation, sandbox, details);
    });
  }

  return {
    held: (sandbox, uid) =>
      move(sandbox, "sandbox.held", { uid }, async (tx) => {
        if (await sandboxes.holdSandbox(tx, sandbox.id, uid)) return true;
        const all = await sandboxes.listSandboxes(tx, lease.tenant, sandbox.owner);
        const recorded = all.find(({ id }) => id === sandbox.id)?.uid;
        if (recorded === uid) return false;
        throw new HoldfastError(
          "uid_conflict",
          `${sandbox.name} has the UID ${recorded ?? "of nobody"} recorded`,
        );
      }),
    released: (sandbox) =>
      move(sandbox, "sandbox.released", {}, (tx) => sandboxes.releaseSandbox(tx, sandbox.id)),
    stopping: (sandbox, reason) =>
      move(sandbox, "sandbox.stopping", { reason }, (tx) => sandboxes.stopSandbox(tx, sandbox.id, reason)),
    stopped: (sandbox, outcome, proof) => {
      const { kind, exitCode, message } = outcome;
      return move(sandbox, "sandbox.stopped", { outcome: kind, exit_code: exitCode, message }, (tx) =>
        sandboxes.proveSandboxStopped(tx, sandbox.id, outcome, proof),
      );
    },
    unproven: (sandbox, reason) =>
      move(sandbox, "sandbox.stop_unproven", { reason: reason.slice(0, 1000) }, (tx) =>
        sandboxes.markStopUnproven(tx, sandbox.id, reason),
      ),
    answered: (sandbox) =>
      move(sandbox, "sandbox.answered", {}, (tx) => sandboxes.clearStopUnproven(tx, sandbox.id)),
    removed: (sandbox) =>
      move(sandbox, "sandbox.removed", {}, (tx) => sandboxes.removeSandbox(tx, sandbox.id), owner.lock),
    appendLog: (sandbox, append) =>
      underLease(db, lease, "appendProgress", (tx) => logs.appendProgress(tx, sandbox, append)),
    readLog: (sandbox) =>
      view(db, { ...scope, name: "readSandboxLog" }, (tx) => logs.readLogProgress(tx, sandbox)),
    readLogRoom: (sandbox, bytesMax) =>
      view(db, { ...scope, name: "readLogRoom" }, (tx) => logs.readLogRoom(tx, sandbox, bytesMax)),
    logEnded: (sandbox, lost) =>
      underLease(db, lease, "recordLogEnd", (tx) =>
        lost === null ? logs.completeLog(tx, sandbox) : logs.loseLog(tx, sandbox, lost),
      ),
  };
}
