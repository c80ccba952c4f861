import { liveRuntimes } from "../core/incarnation.store.ts";
import type { Transaction } from "../core/postgres/transition.ts";
import type { Blocked } from "../wire/job.ts";

/**
 * Says of what needs a runtime whether a controller that is alive has it; null: any will do. A controller may come
 * later, so nothing is refused for the want of one, but whoever looks is told.
 */
export async function blockedIn(
  tx: Transaction,
): Promise<(runtime: string | null) => { readonly blocked?: Blocked }> {
  const alive = await liveRuntimes(tx);
  return (runtime) => {
    if (runtime === null ? alive.size > 0 : alive.has(runtime)) return {};
    const others = alive.size === 0 ? "none is alive" : `those that are alive have ${[...alive].join(", ")}`;
    const needed = runtime === null ? "No controller is alive" : `No controller has the runtime ${runtime}`;
    const why = runtime === null ? "" : `; ${others}`;
    return { blocked: { code: "no_controller", message: `${needed}${why}: it waits until one is started.` } };
  };
}
