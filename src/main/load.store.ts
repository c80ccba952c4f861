import { type Database, view } from "../core/postgres/transition.ts";
import { readAttemptLoad, readPoolLoad } from "./load.sql.ts";

export interface PoolLoad {
  readonly pool: string;
  readonly slots: number;
  readonly used: number;
  readonly waiting: number;
}

/** What waits and what runs, over all tenants. */
export interface Load {
  readonly pools: readonly PoolLoad[];
  readonly active: number;
  /** Finished, and not cleaned yet. */
  readonly finished: number;
  readonly unattended: number;
  readonly unproven: number;
}

const poolsMax = 1_000n;

/** With the dispatcher's rights, which show counts of all tenants and nothing of any. */
export function readLoad(db: Database): Promise<Load> {
  return view(db, { role: "dispatcher", tenant: null, name: "readLoad" }, async (tx) => {
    const pools = await tx.run(readPoolLoad, { limit: poolsMax });
    const { open, active, unattended, unproven } = await tx.run(readAttemptLoad, {});
    return {
      pools: pools.map(({ pool, slots, used, waiting }) => ({
        pool,
        slots: Number(slots),
        used: Number(used),
        waiting: Number(waiting),
      })),
      active: Number(active),
      finished: Number(open - active),
      unattended: Number(unattended),
      unproven: Number(unproven),
    };
  });
}
