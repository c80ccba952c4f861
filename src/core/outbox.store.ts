import { appendChange } from "./change.store.ts";
import { HoldfastError } from "./errors.ts";
import { type Branded, brandId } from "./ids.ts";
import { claimLeases, deleteLease, returnLease } from "./lease.store.ts";
import { fenceOf, type HeldLease } from "./lease.ts";
import * as sql from "./outbox.sql.ts";
import { afterFailure, type PublicationState, publicationRetries, type RetryPolicy } from "./outbox.ts";
import { type Database, type Transaction, transition } from "./postgres/transition.ts";
import { type Instant, instant, type Microseconds } from "./time.ts";

export type PublicationId = Branded<string, "PublicationId">;

/** The lease that makes the first pending publication of a line due. */
export const publicationKind = "publication";

export interface Publication {
  /** Also the delivery id, which stays the same over all tries. */
  readonly id: PublicationId;
  readonly source: { readonly kind: string; readonly id: string };
  /** What is told of one session to one destination is told in the order of the ordinals. */
  readonly session: string;
  readonly ordinal: bigint;
  readonly destination: string;
  readonly payload: unknown;
  readonly createdAt: Instant;
  readonly version: bigint;
  readonly state: PublicationState;
  /** Begun, whether they came to an end or not. */
  readonly tries: number;
  readonly triedAt: Instant | null;
  readonly lastError: string | null;
  readonly lastStatus: number | null;
  readonly settledAt: Instant | null;
}

const errorLengthMax = 1_000;

/**
 * Something must be told to a destination. Part of the transition in which that became true, and once by
 * (source, destination): null when it was written before (S8). For the built-in inbox it is there with that.
 */
export async function insertPublication(
  tx: Transaction,
  publication: Pick<Publication, "source" | "session" | "ordinal" | "destination" | "payload">,
): Promise<PublicationId | null> {
  const { source, session, ordinal, destination, payload } = publication;
  const { publication: id } = await tx.run(sql.publish, {
    source_kind: source.kind,
    source: source.id,
    session,
    ordinal,
    destination,
    payload,
  });
  return id === null ? null : brandId<PublicationId>(id);
}

/** Takes due publications to deliver. */
export function claimPublications(
  db: Database,
  claim: Omit<Parameters<typeof claimLeases>[1], "kind" | "queue">,
): Promise<HeldLease[]> {
  return claimLeases(db, { ...claim, kind: publicationKind });
}

/** `not_found` when there is none of the tenant, or it is gone. */
export async function readPublication(tx: Transaction, id: string): Promise<Publication> {
  const row = await tx.run(sql.readPublication, { publication: id });
  if (row === undefined) throw new HoldfastError("not_found", "there is no such delivery");
  return publicationOf(row);
}

export function publicationOf(row: sql.ReadPublicationRow): Publication {
  return {
    id: brandId<PublicationId>(row.publication_id),
    source: { kind: row.source_kind, id: row.source_id },
    session: row.session_id,
    ordinal: row.ordinal,
    destination: row.destination,
    payload: row.payload,
    createdAt: row.created_at,
    version: row.resource_version,
    // A check constraint holds the column to these.
    state: row.state as PublicationState,
    tries: row.tries,
    triedAt: row.tried_at,
    lastError: row.last_error,
    lastStatus: row.last_status,
    settledAt: row.settled_at,
  };
}

/** How a try ended. `final`: another one would end in the same way. */
export type Delivery =
  | { readonly delivered: true; readonly status: number }
  | {
      readonly delivered: false;
      readonly error: string;
      readonly status?: number;
      readonly final?: boolean;
      /** What the destination asked to be left alone for. */
      readonly retryAfter?: Microseconds;
    };

export interface Settling {
  readonly policy?: RetryPolicy;
  readonly random?: () => number;
}

/**
 * Counts a try as it begins, under its lease (E6). `dead` when the tries are used up: the last one began and nobody
 * knows its end.
 */
export function beginTry(
  db: Database,
  lease: HeldLease,
  { policy = publicationRetries }: Settling = {},
): Promise<"begun" | "dead"> {
  return underPublication(db, lease, "beginDelivery", async (tx) => {
    const publication = await readPublication(tx, lease.resource);
    if (publication.tries < policy.triesMax) {
      await tx.run(sql.beginTry, { publication: lease.resource });
      return "begun";
    }
    const error = publication.lastError ?? "The last try began, and its process ended before it did.";
    await settle(tx, lease, publication, { state: "dead" }, { error, status: publication.lastStatus });
    return "dead";
  });
}

/**
 * Records how a try ended, under its lease (E6): delivered, to be tried again, or dead; the next of its line
 * becomes due after it (S8). Gives the state that the publication has now.
 */
export function settlePublication(
  db: Database,
  lease: HeldLease,
  delivery: Delivery,
  { policy = publicationRetries, random = Math.random }: Settling = {},
): Promise<PublicationState> {
  return underPublication(db, lease, "settleDelivery", async (tx) => {
    const publication = await readPublication(tx, lease.resource);
    if (delivery.delivered) {
      await settle(tx, lease, publication, { state: "delivered" }, { error: null, status: delivery.status });
      return "delivered";
    }
    const { error, status = null, final = false, retryAfter } = delivery;
    const next = final
      ? ({ state: "dead" } as const)
      : afterFailure(publication.tries, policy, random(), retryAfter);
    await settle(tx, lease, publication, next, { error, status });
    return next.state;
  });
}

async function settle(
  tx: Transaction,
  lease: HeldLease,
  { session, destination }: Publication,
  next: { readonly state: "delivered" } | ReturnType<typeof afterFailure>,
  { error, status }: { readonly error: string | null; readonly status: number | null },
): Promise<void> {
  if (next.state === "pending") await returnLease(tx, lease, instant(tx.now + next.after));
  else await deleteLease(tx, lease);
  const { resource_version: version } = await tx.run(sql.settlePublication, {
    publication: lease.resource,
    state: next.state,
    last_error: error === null ? null : error.slice(0, errorLengthMax),
    last_status: status,
  });
  const operation = next.state === "pending" ? "delivery.failed" : `delivery.${next.state}`;
  await appendDelivery(tx, { id: lease.resource, session, destination, version, operation, status });
  if (next.state !== "pending") await tx.run(sql.advanceLine, { session, destination });
}

function appendDelivery(
  tx: Transaction,
  change: {
    readonly id: string;
    readonly session: string;
    readonly destination: string;
    readonly version: bigint;
    readonly operation: string;
    readonly status?: number | null;
  },
): Promise<void> {
  const { id, session, destination, version, operation, status = null } = change;
  const body = { session_id: session, destination, status };
  return appendChange(tx, { kind: "delivery", resource: id, root: session, version, operation, body });
}

/** Gives a claimed publication back before a try has begun, to be taken again after `pause`. */
export function returnPublication(db: Database, lease: HeldLease, pause: Microseconds): Promise<void> {
  return underPublication(db, lease, "returnDelivery", (tx) =>
    returnLease(tx, lease, instant(tx.now + pause)),
  );
}

/**
 * A dead publication is tried again from the start, before what waits in its line; what is being delivered at
 * this moment is not interrupted. `conflict` when it is not dead.
 */
export async function redeliverPublication(tx: Transaction, id: string): Promise<Publication> {
  const { session, destination } = await readPublication(tx, id);
  await tx.run(sql.lockLine, { session, destination });
  const revived = await tx.run(sql.revivePublication, { publication: id });
  if (revived === undefined)
    throw new HoldfastError("conflict", "only a dead delivery can be delivered again");
  await tx.run(sql.freeLine, { session, destination });
  await tx.run(sql.advanceLine, { session, destination });
  const version = revived.resource_version;
  await appendDelivery(tx, { id, session, destination, version, operation: "delivery.revived" });
  return readPublication(tx, id);
}

function underPublication<T>(
  db: Database,
  lease: HeldLease,
  name: string,
  body: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return transition(db, { role: "controller", tenant: lease.tenant, name, fence: fenceOf(lease) }, body);
}
