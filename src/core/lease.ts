import type { IncarnationId, TenantId } from "./ids.ts";
import type { Fence } from "./postgres/transition.ts";
import { type Instant, type Microseconds, seconds } from "./time.ts";

/** What can need attention, one partition of the lease table each. */
export const leaseKinds = [
  "admission",
  "execution",
  "session",
  "activation",
  "sandbox",
  "work",
  "publication",
  "retention",
] as const;
export type LeaseKind = (typeof leaseKinds)[number];

/** 0 is the most urgent. */
export type LeasePriority = 0 | 1 | 2 | 3;

/** How long an unrenewed lease lasts: the longest that the work of a dead process waits. */
export const leaseTime: Microseconds = seconds(30);
/** How often held leases are renewed: two renewals may fail before one is lost. */
export const renewEveryMs = 10_000;
/** How long the main loop may stand still before its leases are no longer renewed. */
export const stallMaxMs = 20_000;

/** A lease that this process has, and the pair (holder, epoch) that its writes present. */
export interface HeldLease {
  readonly tenant: TenantId;
  readonly kind: LeaseKind;
  readonly resource: string;
  readonly holder: IncarnationId;
  readonly epoch: bigint;
  /** By the database's clock. */
  readonly expiresAt: Instant;
  /** The same, on this machine's monotonic clock (`monotonicMs`), and never later than it. */
  readonly heldUntilMs: number;
}

/** The fence for a transition that acts under the lease (E6). */
export function fenceOf(lease: HeldLease): Fence {
  const { kind, resource, holder, epoch } = lease;
  return { kind, resource, holder, epoch };
}
