import type { WorkDefinition } from "./define.ts";
import { permitsAhead } from "./safety.ts";
import type { Claimed } from "./turn.store.ts";

/** How a worker stands when it asks for permits. */
export interface Standing {
  readonly lanes: ReadonlyMap<string, WorkDefinition>;
  /** Handlers at a time. */
  readonly concurrency: number;
  /** Permits that may wait for a handler. */
  readonly ahead: number;
  /** Handlers that run, permits that wait for one, permits that are asked for. */
  readonly taken: number;
  /** Of one turn. */
  readonly max: number;
}

/**
 * Of what is claimed, in order, what may have a permit now: some only when a handler is free for it (W11). What is no
 * longer ours at `nowMs` is left out: somebody else will claim it.
 */
export function permittable(claimed: readonly Claimed[], standing: Standing, nowMs: number): Claimed[] {
  const { lanes, concurrency, taken } = standing;
  const bound = Math.min(concurrency + standing.ahead, taken + standing.max);
  const chosen: Claimed[] = [];
  let strict = 0;
  for (const item of claimed) {
    if (taken + chosen.length >= bound) break;
    const work = lanes.get(item.lane);
    if (work === undefined || item.heldUntilMs <= nowMs) continue;
    if (!permitsAhead[work.safety]) {
      if (taken + chosen.length >= concurrency) continue;
      strict += 1;
    } else if (strict > 0 && taken + chosen.length >= concurrency) {
      // A strict one in this turn runs at once, so nothing is put before it.
      break;
    }
    chosen.push(item);
  }
  return chosen;
}
