import type { IncarnationId } from "../core/ids.ts";
import type { LeaseKeeper } from "../core/postgres/lease-keeper.ts";
import type { Database } from "../core/postgres/transition.ts";
import type { Microseconds } from "../core/time.ts";
import type { Boundary } from "./counters.ts";
import type { WorkDefinition } from "./define.ts";

export interface EngineOptions {
  readonly db: Database;
  readonly holder: IncarnationId;
  readonly keeper: Pick<LeaseKeeper, "holdAll">;
  /** The lanes that are looked into, each with what runs its items. */
  readonly lanes: ReadonlyMap<string, WorkDefinition>;
  /** Handlers in flight, at most. */
  readonly concurrency: number;
  readonly leaseUs: Microseconds;
  /** How long running handlers are waited for when the engine stops; then their signals abort. */
  readonly graceMs: number;
  /** Under which policy late results are kept. */
  readonly retention: string | null;
  readonly onError: (error: unknown, what: string) => void;
  /** For counting; never throws. */
  readonly onSettled?: (name: string, outcome: string) => void;
  /** For counting; never throws. */
  readonly onRefused?: (name: string, boundary: Boundary, reason: string) => void;
  /** After a commit that settled something. */
  readonly onTurn?: () => void;
}

/** Claims, permits, runs and settles, until it is stopped. */
export interface Engine {
  /** Something may be due: look now. */
  wake(): void;
  /** Something has been committed somewhere: look now, and first where work was found last. */
  ring(): void;
  readonly inFlight: number;
  stop(): Promise<void>;
}
