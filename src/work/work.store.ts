import { awaitEarlierTransactions } from "../core/earlier.ts";
import { HoldfastError } from "../core/errors.ts";
import type { TenantId } from "../core/ids.ts";
import { type Database, type Transaction, transition, view } from "../core/postgres/transition.ts";
import type { Instant, Microseconds } from "../core/time.ts";
import { slotAt } from "./plan.ts";
import * as sql from "./work.sql.ts";
import type { WorkState } from "./work.ts";

/** Who asks, for the record. */
export interface Asked {
  readonly tenant: TenantId;
  readonly work: string;
  readonly by: string;
}

/**
 * Asks for an end (gateway or operator). What has not begun ends as `cancelled_before_effect`; what runs becomes
 * `cancel_pending` and may still succeed. Again changes nothing; a finished item stays as it ended. `not_found`
 * when there is none.
 */
export async function cancelWork(
  db: Database,
  {
    tenant,
    work,
    by,
    reason,
    role = "gateway",
  }: Asked & { readonly reason: string; readonly role?: "gateway" | "operator" },
): Promise<WorkState> {
  const { state } = await transition(db, { role, tenant, name: "cancelWork" }, (tx) =>
    tx.run(sql.cancelWork, { work, by, reason }),
  );
  if (state === null) throw new HoldfastError("not_found", "there is no such work");
  return state as WorkState;
}

/** Takes a waiting item out of its line. `conflict` when it does not wait. */
export function suspendWork(db: Database, { tenant, work, by }: Asked): Promise<WorkState> {
  return transition(db, { role: "operator", tenant, name: "suspendWork" }, async (tx) => {
    const { state } = await tx.run(sql.suspendWork, { work, by });
    return state as WorkState;
  });
}

/**
 * Puts a suspended item back: `released` to its own time, `requeued` at once where no plan says when. Never past
 * its cutoff (`admission_closed`), never while an outcome is unknown (`conflict`), never for a disabled tenant.
 */
export function resumeWork(
  db: Database,
  { tenant, work, by, how }: Asked & { readonly how: "released" | "requeued" },
): Promise<WorkState> {
  return transition(db, { role: "operator", tenant, name: "resumeWork" }, async (tx) => {
    const { state } = await tx.run(sql.resumeWork, { work, by, ending: how });
    return state as WorkState;
  });
}

export interface Proof extends Asked {
  readonly verdict: "applied" | "not_applied";
  readonly note?: string;
  /** What the attempt would have given, when it was applied. */
  readonly result?: unknown;
}

/** Settles the most recent unknown outcome by an operator's proof (W11). Gives what the item came to. */
export function resolveWork(
  db: Database,
  { tenant, work, by, verdict, note, result }: Proof,
): Promise<string> {
  return transition(db, { role: "operator", tenant, name: "resolveWork" }, async (tx) => {
    const { state } = await tx.run(sql.proveWork, {
      tenant,
      work,
      verdict,
      source: "operator",
      by,
      note: note ?? null,
      result: verdict === "applied" ? (result ?? null) : null,
      epoch: null,
    });
    return state;
  });
}

/**
 * Disable a tenant for good. First the fact is committed; when every transaction that may not have seen it has
 * ended, all that waits of the tenant is suspended at once. Gives the number of items. Again finds the rest.
 */
export async function disableTenant(db: Database, tenant: TenantId): Promise<bigint> {
  const scope = { role: "operator", tenant, name: "disableTenant" } as const;
  const row = await transition(db, scope, (tx) => tx.run(sql.disableTenant, { tenant }));
  if (row === undefined) throw new HoldfastError("not_found", "there is no such tenant");
  return suspendDisabled(db, tenant);
}

/** The second half, once the fact is committed. */
export async function suspendDisabled(db: Database, tenant: TenantId): Promise<bigint> {
  await awaitEarlierTransactions(db);
  const scope = { role: "operator", tenant, name: "suspendTenantWork" } as const;
  const { suspended } = await transition(db, scope, (tx) => tx.run(sql.suspendTenantWork, {}));
  return suspended;
}

/** Every stored fact of an item but its payload (W12), and each planned attempt against what happened. */
export interface Inspection {
  readonly item: sql.ReadItemRow;
  readonly attempts: readonly sql.ReadAttemptsRow[];
  readonly plan: readonly { readonly attempt: number; readonly eligibleAt: Instant; readonly came: string }[];
  readonly observations: readonly sql.ReadObservationsRow[];
  readonly suspensions: readonly sql.ReadSuspensionsRow[];
  readonly cancel: sql.ReadCancelRow | null;
}

export function inspectWork(db: Database, tenant: TenantId, work: string): Promise<Inspection> {
  return view(db, { role: "operator", tenant, name: "inspectWork" }, (tx) => inspection(tx, work));
}

/** Throws `not_found`. */
export async function inspection(tx: Transaction, work: string): Promise<Inspection> {
  const item = await tx.run(sql.readItem, { work });
  if (item === undefined) throw new HoldfastError("not_found", "there is no such work");
  const attempts = await tx.run(sql.readAttempts, { work });
  return {
    item,
    attempts,
    plan: planned(item, attempts),
    observations: await tx.run(sql.readObservations, { work }),
    suspensions: await tx.run(sql.readSuspensions, { work }),
    cancel: (await tx.run(sql.readCancel, { work })) ?? null,
  };
}

function planned(item: sql.ReadItemRow, attempts: readonly sql.ReadAttemptsRow[]): Inspection["plan"] {
  const {
    attempt_plan_offsets: offsets,
    attempt_plan_version: version,
    maximum_circuit_microseconds: circuit,
  } = item;
  if (offsets === null || version === null || circuit === null) return [];
  const plan = { version, offsets: offsets as Microseconds[], circuit: circuit as Microseconds };
  return offsets.map((_, used) => {
    const ended = attempts.findLast(({ attempt, outcome }) => attempt === used + 1 && outcome !== "returned");
    const came =
      ended?.outcome ??
      (used + 1 > item.attempts ? "not_used" : used + 1 < item.attempts ? "returned" : item.state);
    return { attempt: used + 1, eligibleAt: slotAt(plan, item.accepted_at, used) ?? item.accepted_at, came };
  });
}

/** The payload, which no inspection, log or metric has: for those who may read it. */
export function readPayload(db: Database, tenant: TenantId, work: string) {
  return view(db, { role: "gateway", tenant, name: "readPayload" }, (tx) =>
    tx.run(sql.readPayload, { work }),
  );
}

/** Those that wait for somebody, oldest first. */
export function listSuspended(
  db: Database,
  tenant: TenantId,
  limit: number,
): Promise<sql.ListSuspendedRow[]> {
  return view(db, { role: "operator", tenant, name: "listSuspended" }, (tx) =>
    tx.run(sql.listSuspended, { limit: BigInt(limit) }),
  );
}

/**
 * Removes quarantined observations whose policy has ended, up to a batch; gives their number. A policy that is not
 * named here, and none at all, keeps for ever; nothing younger than a day is seen, whatever is said here.
 */
export function sweepObservations(
  db: Database,
  policies: ReadonlyMap<string, Microseconds>,
  batch = 1_000,
): Promise<number> {
  return transition(db, { role: "retention", tenant: null, name: "sweepObservations" }, (tx) =>
    tx.run(sql.sweepObservations, {
      policies: [...policies.keys()],
      keeps_us: [...policies.values()],
      limit: BigInt(batch),
    }),
  );
}
