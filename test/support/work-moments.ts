import type { Pool } from "pg";
import type { Pools } from "../../src/core/postgres/pool.ts";

/** Around each statement of the hot path and around the effect, in their order. */
export const crashMoments = [
  "before claim",
  "after claim",
  "before permit",
  "after permit",
  "before effect",
  "after effect",
  "before settle",
  "after settle",
] as const;
export type CrashMoment = (typeof crashMoments)[number];

/** Tells of each moment around the statements of a worker's engine; what follows waits for the answer. */
export function watchStatements(
  pools: Pick<Pools, "of">,
  at: (moment: string) => Promise<void> | void,
): void {
  for (const role of ["dispatcher", "worker"] as const) watch(pools.of(role), at);
}

function watch(pool: Pool, at: (moment: string) => Promise<void> | void): void {
  const query = pool.query.bind(pool) as (...args: unknown[]) => Promise<{ rows: unknown[] }>;
  const watched = async (...args: unknown[]) => {
    const [asked] = args as [{ name?: string; values?: unknown[] }];
    const what = kindOf(asked);
    if (what !== null) await at(`before ${what}`);
    const result = await query(...args);
    if (what !== null && (what !== "claim" || hasClaimed(result.rows))) await at(`after ${what}`);
    return result;
  };
  pool.query = watched as typeof pool.query;
}

/** Which statement it is, its name and its values say. */
function kindOf({ name, values = [] }: { name?: string; values?: unknown[] }): string | null {
  if (name === "turn.claimWork") return "claim";
  if (name !== "turn.turnWork") return null;
  // The ids of what succeeded, as they are sent.
  return values[5] === "{}" ? "permit" : "settle";
}

function hasClaimed([row]: unknown[]): boolean {
  const { answer } = row as { answer: string }; // of `turn.claimWork`
  return (JSON.parse(answer) as { i: unknown[] }).i.length > 0;
}
