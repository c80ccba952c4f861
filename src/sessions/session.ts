import { HoldfastError } from "../core/errors.ts";

/** What is wanted of a session. `deleted` is never taken back. */
export type SessionIntent = "active" | "suspended" | "closed" | "deleted";

/** What was observed of it, always of a generation. */
export type ObservedState = "pending" | "idle" | "running" | "waiting" | "suspended" | "closed" | "deleted";

/** Whether a new activation may be admitted, or why not. */
export function assertAdmits(desired: SessionIntent): void {
  switch (desired) {
    case "active":
    case "suspended":
      return;
    case "closed":
    case "deleted":
      throw new HoldfastError("conflict", `the session is ${desired}: it takes no more activations`);
    default:
      return desired satisfies never;
  }
}

/**
 * Whether an observation may be recorded: never of a generation before the one observed last, and nothing but its
 * deletion of a session that was deleted (G8, G12). The database refuses the same (`cloud_sessions_keep_order`).
 */
export function mayObserve(
  session: {
    readonly generation: bigint;
    readonly observedGeneration: bigint;
    readonly observed: ObservedState;
    readonly desired: SessionIntent;
  },
  observation: { readonly generation: bigint; readonly state: ObservedState },
): boolean {
  const { generation, state } = observation;
  if (generation < session.observedGeneration || generation > session.generation) return false;
  if (session.observed === "deleted") return state === "deleted";
  return state !== "pending" && (state !== "deleted" || session.desired === "deleted");
}
