import { HoldfastError } from "./errors.ts";
import { type Branded, brandId, type TenantId, uuidv7 } from "./ids.ts";
import { claimLeases, deleteLease, insertLease, returnLease } from "./lease.store.ts";
import { fenceOf, type HeldLease } from "./lease.ts";
import * as sql from "./outbox.sql.ts";
import { afterFailure, type PublicationState, publicationRetries, type RetryPolicy } from "./outbox.ts";
import { type Database, type Transaction, transition, view } from "./postgres/transition.ts";
import { type Instant, instant } from "./time.ts";

export type PublicationId = Branded<string, "PublicationId">;

export interface Publication {
  /** Also the delivery id, which stays the same over all tries. */
  readonly id: PublicationId;
  readonly source: { readonly kind: string; readonly id: string };
  readonly destination: string;
  readonly payload: unknown;
  readonly createdAt: Instant;
  readonly state: PublicationState;
  readonly tries: number;
  readonly lastError: string | null;
}

const errorLengthMax = 1_000;

/**
 * Something must be told to a destination. Part of the transition in which that became true, and once by
 * (source, destination): null when it was written before (S8).
 */
export async function insertPublication(
  tx: Transaction,
  publication: Pick<Publication, "source" | "destination" | "payload">,
): Promise<PublicationId | null> {
  const id = brandId<PublicationId>(uuidv7());
  const written = await tx.run(sql.insertPublication, {
    publication: id,
    source_kind: publication.source.kind,
    source: publication.source.id,
    destination: publication.destination,
    payload: publication.payload,
  });
  if (written === undefined) return null;
  await insertLease(tx, { kind: "publication", resource: id, dueAt: tx.now });
  return id;
}

/** Takes due publications to deliver. */
export function claimPublications(
  db: Database,
  claim: Omit<Parameters<typeof claimLeases>[1], "kind" | "queue">,
): Promise<HeldLease[]> {
  return claimLeases(db, { ...claim, kind: "publication" });
}

export function readPublication(
  db: Database,
  tenant: TenantId,
  id: string,
): Promise<Publication | undefined> {
  return view(db, { role: "controller", tenant, name: "read publication" }, (tx) => inTransaction(tx, id));
}

async function inTransaction(tx: Transaction, id: string): Promise<Publication | undefined> {
  const row = await tx.run(sql.readPublication, { publication: id });
  if (row === undefined) return undefined;
  return {
    id: brandId<PublicationId>(row.publication_id),
    source: { kind: row.source_kind, id: row.source_id },
    destination: row.destination,
    payload: row.payload,
    createdAt: row.created_at,
    // A check constraint holds the column to these.
    state: row.state as PublicationState,
    tries: row.tries,
    lastError: row.last_error,
  };
}

export type Delivery = { readonly delivered: true } | { readonly delivered: false; readonly error: string };

/**
 * Records how a try ended, under its lease (E6): delivered, to be tried again, or dead. Gives the state that
 * the publication has now.
 */
export function settlePublication(
  db: Database,
  lease: HeldLease,
  delivery: Delivery,
  options: { readonly policy?: RetryPolicy; readonly random?: () => number } = {},
): Promise<PublicationState> {
  const { policy = publicationRetries, random = Math.random } = options;
  const scope = { role: "controller", tenant: lease.tenant, name: "settle publication" } as const;
  return transition(db, { ...scope, fence: fenceOf(lease) }, async (tx) => {
    const publication = await inTransaction(tx, lease.resource);
    if (publication === undefined) throw new HoldfastError("not_found", "the publication is gone");
    const next = delivery.delivered
      ? ({ state: "delivered" } as const)
      : afterFailure(publication.tries + 1, policy, random());
    if (next.state === "pending") await returnLease(tx, lease, instant(tx.now + next.after));
    else await deleteLease(tx, lease);
    await tx.run(sql.settlePublication, {
      publication: lease.resource,
      state: next.state,
      last_error: delivery.delivered ? null : delivery.error.slice(0, errorLengthMax),
    });
    return next.state;
  });
}

/** An operator has a dead publication tried again from the start. `conflict` when it is not dead. */
export function redeliverPublication(db: Database, tenant: TenantId, id: PublicationId): Promise<void> {
  return transition(db, { role: "operator", tenant, name: "redeliver publication" }, async (tx) => {
    const revived = await tx.run(sql.redeliverPublication, { publication: id });
    if (revived === 0) throw new HoldfastError("conflict", "only a dead publication can be redelivered");
    await insertLease(tx, { kind: "publication", resource: id, dueAt: tx.now });
  });
}
