import { HoldfastError } from "../core/errors.ts";
import type { HeldLease } from "../core/lease.ts";
import { type Publication, readPublication } from "../core/outbox.store.ts";
import { type Database, type Transaction, view } from "../core/postgres/transition.ts";
import { formatInstant, type Instant } from "../core/time.ts";
import type { DeliveryDetail, DeliveryState, DeliveryView } from "../wire/delivery.ts";
import * as sql from "./delivery.sql.ts";
import type { KeyReference } from "./signing-keys.ts";

/** Where a publication goes. */
export interface Target {
  readonly url: string;
  /** Two at most, each of which signs. */
  readonly keys: readonly KeyReference[];
}

/** What is to be delivered, and where to; a null target: no template of the agent names the destination. */
export function readDue(
  db: Database,
  { tenant, resource }: HeldLease,
): Promise<{ readonly publication: Publication; readonly target: Target | null }> {
  return view(db, { role: "controller", tenant, name: "readDue" }, async (tx) => {
    const publication = await readPublication(tx, resource);
    const { session, destination } = publication;
    const found = await tx.run(sql.readTarget, { session, destination });
    // The template was checked against its schema before it was stored.
    const target = found === undefined ? null : { url: found.url, keys: found.secrets as KeyReference[] };
    return { publication, target };
  });
}

export interface DeliveryFilter {
  readonly state: DeliveryState | null;
  readonly session: string | null;
  readonly destination: string | null;
}

export interface DeliveryPlace {
  readonly at: Instant;
  readonly id: string;
}

/** Newest first. */
export async function listDeliveries(
  tx: Transaction,
  filter: DeliveryFilter,
  { after, limit }: { readonly after: DeliveryPlace | null; readonly limit: number },
): Promise<{ readonly deliveries: readonly DeliveryView[]; readonly next: DeliveryPlace | null }> {
  const rows = await tx.run(sql.listDeliveries, {
    ...filter,
    after_created_at: after?.at ?? null,
    after_publication: after?.id ?? null,
    limit: BigInt(limit) + 1n,
  });
  const page = rows.slice(0, limit);
  const last = page.at(-1);
  const next =
    rows.length > limit && last !== undefined ? { at: last.created_at, id: last.publication_id } : null;
  return { deliveries: page.map(deliveryView), next };
}

/** Throws `not_found`. */
export async function getDelivery(tx: Transaction, id: string): Promise<DeliveryDetail> {
  const row = await tx.run(sql.getDelivery, { publication: id });
  if (row === undefined) throw new HoldfastError("not_found", "there is no such delivery");
  return { ...deliveryView(row), payload: row.payload };
}

function deliveryView(row: sql.ListDeliveriesRow): DeliveryView {
  return {
    id: row.publication_id,
    session_id: row.session_id,
    ordinal: Number(row.ordinal),
    destination: row.destination,
    source: { kind: row.source_kind, id: row.source_id },
    // A check constraint holds the column to these.
    state: row.state as DeliveryState,
    tries: row.tries,
    tried_at: timeOrNull(row.tried_at),
    next_try_at: timeOrNull(row.next_try_at),
    last_error: row.last_error,
    last_status: row.last_status,
    resource_version: String(row.resource_version),
    created_at: formatInstant(row.created_at),
    settled_at: timeOrNull(row.settled_at),
  };
}

const timeOrNull = (at: Instant | null) => (at === null ? null : formatInstant(at));
