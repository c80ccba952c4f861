import type { IncarnationId } from "./ids.ts";
import type { Instant } from "./time.ts";

/** One run of one process, as the store knows it. Leases name their holder by its id. */
export interface Incarnation {
  readonly id: IncarnationId;
  /** What the process is: `controller`, `gateway`, `dev`, … */
  readonly process: string;
  readonly release: string;
  /** The schema versions that it understands; raising a floor looks here. */
  readonly schema: { readonly minimum: number; readonly maximum: number };
  readonly deploymentEpoch: bigint;
  readonly startedAt: Instant;
  /** Its last heartbeat, which comes with the renewals of its leases. */
  readonly seenAt: Instant;
}
