import {
  type AppendChangeParams,
  appendChange as appendChangeStatement,
  readChanges as readChangesStatement,
  readCounter as readCounterStatement,
} from "./change.sql.ts";
import type { ChangeFilter } from "./cursor.ts";
import type { TenantId } from "./ids.ts";
import { type Database, runAlone, type Transaction, view } from "./postgres/transition.ts";
import type { Instant } from "./time.ts";

export interface Change {
  readonly position: bigint;
  readonly kind: string;
  readonly resource: string;
  /** The resource that a person would look at: an attempt's changes belong to its job. */
  readonly root: string;
  readonly resourceVersion: bigint;
  readonly operation: string;
  readonly at: Instant;
  /** W3C trace context of what caused it, where it is known. */
  readonly traceparent: string | null;
  readonly body: unknown;
}

/** Part of the transition that changes the resource, after its row is locked (S6). */
export async function appendChange(tx: Transaction, change: AppendChangeParams): Promise<void> {
  await tx.run(appendChangeStatement, change);
}

/** One tenant's changes after a position and up to another, in order, under row-level security (S9, S14). */
export function readChanges(
  db: Database,
  tenant: TenantId,
  range: ChangeFilter & { readonly after: bigint; readonly upto: bigint; readonly limit: number },
): Promise<Change[]> {
  return view(db, { role: "gateway", tenant, name: "read changes" }, async (tx) => {
    const { after, upto, kinds, root } = range;
    const rows = await tx.run(readChangesStatement, {
      after,
      upto,
      kinds,
      root,
      labels: range.labels ?? {},
      limit: BigInt(range.limit),
    });
    return rows.map((row) => ({
      position: row.position,
      kind: row.kind,
      resource: row.resource_id,
      root: row.root_id,
      resourceVersion: row.resource_version,
      operation: row.operation,
      at: row.at,
      traceparent: row.traceparent,
      body: row.body,
    }));
  });
}

/** The last position given, and the one below which changes may have been removed. */
export function readCounter(
  db: Pick<Database, "pools">,
): Promise<{ readonly position: bigint; readonly floor: bigint }> {
  return runAlone(db, "dispatcher", readCounterStatement, {});
}
