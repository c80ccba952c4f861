import * as sql from "./drain.sql.ts";
import { countMax, type DrainKind, isDrainKind, type Left } from "./drain.ts";
import { awaitEarlierTransactions } from "./earlier.ts";
import { type Database, runAlone, type Transaction, transition, view } from "./postgres/transition.ts";
import type { Instant } from "./time.ts";

/** A kind that is drained, why, and since when. */
export interface Drain {
  readonly kind: DrainKind;
  readonly reason: string;
  readonly startedAt: Instant;
  readonly startedBy: string;
}

/**
 * The one place that every admission asks: `tenant_disabled` when the tenant admits nothing, `draining` when the
 * kind does not.
 */
export async function assertKindAdmits(tx: Transaction, kind: DrainKind): Promise<void> {
  await tx.run(sql.assertAdmits, { kind });
}

/**
 * Admit nothing new of these kinds. When this gives true, nothing that began before can add to what is left; false:
 * an earlier transaction is still open after ten seconds. Draining again changes nothing.
 */
export async function startDrain(
  db: Database,
  kinds: readonly DrainKind[],
  reason: string,
): Promise<boolean> {
  await transition(db, { role: "operator", tenant: null, name: "startDrain" }, async (tx) => {
    for (const kind of kinds) await tx.run(sql.startDrain, { kind, reason });
  });
  return awaitEarlierTransactions(db);
}

/** Admit these kinds again. */
export async function endDrain(db: Database, kinds: readonly DrainKind[], reason: string): Promise<void> {
  await transition(db, { role: "operator", tenant: null, name: "endDrain" }, async (tx) => {
    await tx.run(sql.nameReason, { reason });
    for (const kind of kinds) await tx.run(sql.endDrain, { kind });
  });
}

export async function listDrains(db: Database): Promise<Drain[]> {
  const scope = { role: "operator", tenant: null, name: "listDrains" } as const;
  const rows = await view(db, scope, (tx) => tx.run(sql.listDrains, {}));
  return rows.flatMap(({ kind, reason, started_at, started_by }) =>
    isDrainKind(kind) ? [{ kind, reason, startedAt: started_at, startedBy: started_by }] : [],
  );
}

/** What is left of all kinds; needs the dispatcher's role, which sees leases of all tenants and no payload. */
export function countLeft(db: Pick<Database, "pools">): Promise<Left> {
  return runAlone(db, "dispatcher", sql.countLeft, { count_max: BigInt(countMax) });
}
