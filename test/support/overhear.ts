import type { Database } from "../../src/core/postgres/transition.ts";

/** A statement as the driver is given it. */
export interface Asked {
  readonly name?: string;
  readonly values?: readonly unknown[];
}

/** Hears what is asked of the database through a handle, before it is sent and when it is answered. */
export function overhear(
  { db }: { readonly db: Database },
  heard: (asked: Asked, answered: boolean) => void,
): void {
  for (const role of ["worker", "dispatcher"] as const) {
    const pool = db.pools.of(role);
    const query = pool.query.bind(pool) as (asked: Asked) => Promise<unknown>;
    Object.assign(pool, {
      query(asked: Asked) {
        heard(asked, false);
        return query(asked).finally(() => heard(asked, true));
      },
    });
  }
}

/** How many a turn may take: the last value but one. */
export const takes = ({ values = [] }: Asked) => Number(values.at(-2));
/** The fourth is an array of the places of what it settles, as PostgreSQL writes it. */
export const settles = ({ values = [] }: Asked) => values[3] !== "{}";
