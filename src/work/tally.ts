import type { Done, Turn } from "./turn.store.ts";

/** What each attempt of a turn came to, once. Of what matched nothing it is told when that is known. */
export function tally(
  settled: readonly Done[],
  { unmatched, settled: failures }: Pick<Turn, "unmatched" | "settled">,
): readonly (readonly [done: Done, what: string])[] {
  const open = new Set(unmatched);
  return [
    ...settled
      .filter((done) => done.outcome.type === "succeeded" && !open.has(done))
      .map((done) => [done, "finished"] as const),
    ...failures
      .filter(({ done }) => done.outcome.type !== "returned")
      .map(({ done, what }) => [done, what] as const),
  ];
}
