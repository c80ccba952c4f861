import { brandId, type IncarnationId, type TenantId } from "./ids.ts";
import * as sql from "./lease.sql.ts";
import { fenceOf, type HeldLease, type LeaseKind, type LeasePriority, leaseTime } from "./lease.ts";
import { monotonicMs } from "./monotonic.ts";
import { type Database, type Transaction, transition } from "./postgres/transition.ts";
import { type Instant, type Microseconds, toMilliseconds } from "./time.ts";

/**
 * Takes leases that are due: new ones, and those whose holder let them expire (E5). At most `quota` of each
 * tenant, so that nobody's backlog delays the others. Rows that somebody else is taking are skipped, so fewer
 * than `limit` does not mean that there are no more.
 */
export async function claimLeases(
  db: Database,
  claim: {
    readonly kind: LeaseKind;
    readonly queue?: string;
    readonly holder: IncarnationId;
    readonly limit: number;
    readonly quota: number;
    /** Tenants that have enough of this process at present. */
    readonly full?: readonly TenantId[];
    readonly leaseUs?: Microseconds;
  },
): Promise<HeldLease[]> {
  const { kind, holder, queue = "default", leaseUs = leaseTime } = claim;
  // Before the database's own sample, so that this side never believes in a lease for longer than that one.
  const heldUntilMs = monotonicMs() + toMilliseconds(leaseUs);
  const scope = { role: "dispatcher", tenant: null, name: `claim ${kind} leases` } as const;
  // Nobody waits for a lease to be taken: this commit rings nowhere.
  const rows = await transition({ ...db, committed: () => undefined }, scope, (tx) =>
    tx.run(sql.claimLeases, {
      kind,
      queue,
      holder,
      now: tx.now,
      limit: BigInt(claim.limit),
      quota: BigInt(claim.quota),
      full: [...(claim.full ?? [])],
      lease_us: leaseUs,
    }),
  );
  return rows.map((row) => ({
    tenant: brandId<TenantId>(row.tenant_id),
    kind,
    resource: row.resource_id,
    holder,
    epoch: row.epoch,
    expiresAt: row.expires_at,
    heldUntilMs,
  }));
}

/** A transition of the lease's holder. The lease is locked first; a stale one changes nothing (HF001). */
export function underLease<T>(
  db: Database,
  lease: HeldLease,
  name: string,
  body: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return transition(db, { role: "controller", tenant: lease.tenant, name, fence: fenceOf(lease) }, body);
}

export interface LeaseRef {
  readonly kind: LeaseKind;
  readonly resource: string;
}

export interface NewLease extends LeaseRef {
  readonly queue?: string;
  readonly priority?: LeasePriority;
  readonly dueAt: Instant;
}

/** A new thing that will need attention. Part of the transition that makes it (G2). */
export async function insertLease(tx: Transaction, lease: NewLease): Promise<void> {
  const { kind, resource, queue = "default", priority = 2, dueAt } = lease;
  await tx.run(sql.insertLease, { kind, resource, queue, priority, due_at: dueAt });
}

/** A new thing that its maker attends to from now on. Worth nothing until the transition has committed. */
export async function insertHeldLease(
  tx: Transaction,
  lease: NewLease & {
    readonly tenant: TenantId;
    readonly holder: IncarnationId;
    readonly leaseUs?: Microseconds;
  },
): Promise<HeldLease> {
  const { tenant, kind, resource, holder, dueAt } = lease;
  const { queue = "default", priority = 2, leaseUs = leaseTime } = lease;
  const heldUntilMs = monotonicMs() + toMilliseconds(leaseUs);
  const row = await tx.run(sql.insertHeldLease, {
    kind,
    resource,
    queue,
    priority,
    holder,
    due_at: dueAt,
    lease_us: leaseUs,
  });
  return { tenant, kind, resource, holder, epoch: row.epoch, expiresAt: row.expires_at, heldUntilMs };
}

/**
 * Gives a lease back, to be due again at `dueAt`. Call it under the lease's fence. Its epoch stays behind and
 * fences nothing any more; the next claim draws a higher one.
 */
export async function returnLease(tx: Transaction, lease: LeaseRef, dueAt: Instant): Promise<void> {
  await tx.run(sql.returnLease, { kind: lease.kind, resource: lease.resource, due_at: dueAt });
}

/** Nothing is left to attend to. Call it under the lease's fence, or with the row locked. */
export async function deleteLease(tx: Transaction, lease: LeaseRef): Promise<void> {
  await tx.run(sql.deleteLease, { kind: lease.kind, resource: lease.resource });
}

/**
 * What a process still held becomes due at once instead of after the lease time. Only for one that is proven
 * to be over, or for oneself on the way out. Gives the number of leases.
 */
export function expireLeasesOf(db: Database, holder: IncarnationId): Promise<number> {
  const scope = { role: "dispatcher", tenant: null, name: "expireLeasesOf" } as const;
  return transition(db, scope, (tx) => tx.run(sql.expireLeasesOf, { holder }));
}
