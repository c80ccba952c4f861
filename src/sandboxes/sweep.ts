import { setTimeout as delay } from "node:timers/promises";
import { isTenantId, type TenantId } from "../core/ids.ts";
import { type Loop, startLoop } from "../core/loop.ts";
import { monotonicMs } from "../core/monotonic.ts";
import { type Database, runAlone, transition, view } from "../core/postgres/transition.ts";
import type { ExternalObject, Runtime } from "../core/runtime.port.ts";
import type { SandboxState } from "./sandbox.ts";
import { drawEpoch, readLastEpoch, readSandboxByName, recordSwept } from "./sweep.sql.ts";

/** Why an outside object is nobody's. */
export type OrphanReason = "unknown" | "other_uid" | "settled";

/**
 * Whether an object is an orphan, by the row that has its name; null: it is owned. A planned row without a UID
 * owns whatever has its name: its controller is just making it.
 */
export function orphanReason(
  object: Pick<ExternalObject, "uid">,
  row: { readonly uid: string | null; readonly state: SandboxState } | undefined,
): OrphanReason | null {
  if (row === undefined) return "unknown";
  if (row.uid !== null && row.uid !== object.uid) return "other_uid";
  switch (row.state) {
    case "planned":
    case "held":
    case "released":
    case "stopping":
      return null;
    case "stopped":
      // Its attempt cleans it by UID. Without a recorded UID nobody knows of it but us.
      return row.uid === null ? "settled" : null;
    case "removed":
      return "settled";
    default:
      return row.state satisfies never;
  }
}

export interface SweepOptions {
  readonly db: Database;
  readonly runtimes: readonly Runtime[];
  readonly intervalMs: number;
  /** An object is removed only when it was an orphan at two looks that are at least this far apart. */
  readonly graceMs: number;
  /** After each whole look at every runtime. */
  readonly swept?: () => void;
  readonly log: (
    level: "info" | "warn" | "error",
    message: string,
    details: Readonly<Record<string, unknown>>,
  ) => void;
}

/** Finds and removes orphans on every runtime, now and then (E21). Any number of processes may do it at once. */
export function startSweep(options: SweepOptions): Loop {
  const suspects = new Map<string, number>();
  return startLoop({
    onError: (error) => options.log("warn", "the sweep failed and is tried again", { error: String(error) }),
    async turn(signal) {
      for (const runtime of options.runtimes) await sweepOnce(options, runtime, suspects, signal);
      options.swept?.();
      await delay(options.intervalMs, undefined, { signal });
    },
  });
}

/**
 * One look at one runtime. `suspects` remembers between looks since when an object has been an orphan. Gives
 * what was removed.
 */
export async function sweepOnce(
  { db, graceMs, log }: Pick<SweepOptions, "db" | "graceMs" | "log">,
  runtime: Runtime,
  suspects: Map<string, number>,
  signal: AbortSignal,
): Promise<ExternalObject[]> {
  const removed: ExternalObject[] = [];
  const seen = new Set<string>();
  const { epoch: last } = await runAlone(db, "dispatcher", readLastEpoch, {});
  for await (const object of runtime.list(signal)) {
    const key = `${runtime.kind}/${object.name}/${object.uid}`;
    seen.add(key);
    if (object.tenant === null || !isTenantId(object.tenant)) continue;
    if (object.epoch > last) {
      // Made under an epoch that this store has never given: it was restored to an earlier point, and what
      // looks like an orphan may be wanted. Nothing is swept until an operator has looked.
      log(
        "error",
        "an outside object is ahead of this store, which was probably restored: nothing is swept",
        {
          object: object.name,
          epoch: String(object.epoch),
          last: String(last),
        },
      );
      return removed;
    }
    const reason = await whyOrphan(db, object.tenant, object);
    if (reason === null) {
      suspects.delete(key);
      continue;
    }
    const since = suspects.get(key);
    if (since === undefined) suspects.set(key, monotonicMs());
    if (since === undefined || monotonicMs() - since < graceMs) continue;
    try {
      if (!(await removeOrphan(db, runtime, object, object.tenant, reason, signal))) continue;
      suspects.delete(key);
      removed.push(object);
      log("info", "an orphan was removed", { object: object.name, uid: object.uid, reason });
    } catch (error) {
      signal.throwIfAborted();
      // One that can't be removed keeps none of the others here. The next look tries it again.
      const details = { object: object.name, uid: object.uid, error: String(error) };
      log("warn", "an orphan can't be removed yet", details);
    }
  }
  for (const key of suspects.keys())
    if (key.startsWith(`${runtime.kind}/`) && !seen.has(key)) suspects.delete(key);
  return removed;
}

function whyOrphan(db: Database, tenant: TenantId, object: ExternalObject): Promise<OrphanReason | null> {
  return view(db, { role: "controller", tenant, name: "readSandboxByName" }, async (tx) => {
    const row = await tx.run(readSandboxByName, { name: object.name });
    return orphanReason(object, row && { uid: row.uid, state: row.state as SandboxState });
  });
}

/** Stop it, look that it has stopped, delete it by UID, record it. False: not yet; the next look goes on. */
async function removeOrphan(
  db: Database,
  runtime: Runtime,
  object: ExternalObject,
  tenant: TenantId,
  reason: OrphanReason,
  signal: AbortSignal,
): Promise<boolean> {
  const ref = { name: object.name, uid: object.uid };
  const { epoch } = await runAlone(db, "dispatcher", drawEpoch, {});
  await runtime.stop(ref, epoch, signal);
  const { state } = await runtime.observe(ref, signal);
  if (state !== "stopped" && state !== "absent") return false;
  await runtime.remove(ref, signal);
  await transition(db, { role: "controller", tenant, name: "recordSwept" }, (tx) =>
    tx.run(recordSwept, {
      name: object.name,
      uid: object.uid,
      runtime: runtime.kind,
      epoch: object.epoch,
      reason,
    }),
  );
  return true;
}
