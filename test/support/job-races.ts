import assert from "node:assert/strict";
import { isDeepStrictEqual } from "node:util";
import { stampAll } from "../../src/core/sequencer.ts";
import { gatedDatabase, standingOf } from "./gate.ts";
import { assertInvariantsOf } from "./invariants.ts";
import { apply, type JobModel, type Operation, operations } from "./job-model.ts";
import { perform } from "./job-operations.ts";
import type { JobWorld, StoredJob } from "./job-world.ts";

/** Two operations on one job, both begun by somebody who saw it in the same state. */
export interface Pair {
  readonly name: string;
  readonly template: StoredJob;
  readonly first: Operation;
  readonly second: Operation;
}

/** These skip what somebody else has locked instead of waiting for it. */
const skipping: Partial<Record<Operation, string>> = { admit: "none", lease: "none", renew: "busy" };

/** Whether it does something then, by the model. */
export function allowed(operation: Operation, model: JobModel): boolean {
  const next = apply(operation, model, model);
  return next !== null && (next.result === "renewed" || !isDeepStrictEqual(next.job, model));
}

/** Each ordered pair in each state. What is refused changes nothing, so it never is the first one. */
export function pairsOf(templates: ReadonlyMap<string, StoredJob>): Pair[] {
  return [...templates].flatMap(([state, template]) =>
    operations.flatMap((first) =>
      operations.flatMap((second) => {
        const possible =
          allowed(first, template.model) && apply(second, template.model, template.model) !== null;
        return possible ? [{ name: `${state}: ${first}, ${second}`, template, first, second }] : [];
      }),
    ),
  );
}

export const movesClock = ({ first, second }: Pair): boolean => first === "deadline" || second === "deadline";

/** What the model says of one after the other, each decided on what both knew at the beginning. */
function inTurn(known: JobModel, order: readonly Operation[]): readonly [results: string[], job: JobModel] {
  let job = known;
  const results: string[] = [];
  for (const operation of order) {
    const next = apply(operation, known, job);
    assert(next !== null, `${operation} has nothing to act on`);
    results.push(next.result);
    job = next.job;
  }
  return [results, job];
}

/**
 * Runs the first up to its `at`th statement, or its end, and holds it open there; then the second as far as it
 * gets. When it waits, the first goes on and the second follows, and nothing else explains what is seen. When it
 * does not wait, what is seen has to be what one after the other would have given, in either order.
 */
export async function race(
  world: JobWorld,
  { template, first, second }: Pair,
  at: number | "end" = "end",
): Promise<{ readonly waited: boolean; readonly statements: number; readonly job: JobModel }> {
  const known = await world.copy(template);
  assert.deepEqual(known.model, template.model, "the copy is another");
  const a = gatedDatabase(world.bench.db, at);
  const b = gatedDatabase(world.bench.db);
  const firstDone = perform(world, a.db, first, known);
  await Promise.race([a.reached, firstDone]);
  const secondDone = perform(world, b.db, second, known);
  const standing = await standingOf(b, secondDone, world.blocked);
  // At the end, commits follow the order of the pair; in the middle, the second one commits inside the first.
  if (at !== "end") b.open();
  if (at !== "end" && standing === "at the gate") await secondDone;
  a.open();
  const firstResult = await firstDone;
  b.open();
  const secondResult = await secondDone;
  const { model: job } = await world.read(known.job);

  const observed = [firstResult, secondResult, job];
  const [inOrder, last] = inTurn(known.model, [first, second]);
  const accepted: unknown[] = [[...inOrder, last]];
  const waited = standing === "waits";
  if (!waited || at !== "end") {
    const [reversed, otherLast] = inTurn(known.model, [second, first]);
    accepted.push([...reversed.toReversed(), otherLast]);
    const skipped = skipping[second];
    const [[alone], afterFirst] = inTurn(known.model, [first]);
    if (skipped !== undefined) accepted.push([alone, skipped, afterFirst]);
  }
  if (!accepted.some((one) => isDeepStrictEqual(one, observed))) {
    assert.deepEqual(observed, accepted[0], `${standing}, and no order explains it`);
  }
  return { waited, statements: a.sent(), job };
}

const failuresMax = 20;

/** Runs the cases, several at a time: each has a job, a pool and a runtime of its own. */
export async function runAll<Case extends { readonly name: string }>(
  cases: readonly Case[],
  atOnce: number,
  run: (one: Case) => Promise<void>,
): Promise<void> {
  const failures: string[] = [];
  const left = [...cases];
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      for (let one = left.shift(); one !== undefined && failures.length < failuresMax; one = left.shift()) {
        try {
          await run(one);
        } catch (error) {
          failures.push(`${one.name}: ${error instanceof Error ? error.message : String(error)}`);
        }
      }
    }),
  );
  assert.deepEqual(failures, []);
}

/** After how many cases the whole store is asked whether what is always true is true. */
const askEvery = 250;

/** All pairs, each with the second one begun while the first is held open at its end. */
export async function runMatrix(
  world: JobWorld,
  templates: ReadonlyMap<string, StoredJob>,
): Promise<{ readonly pairs: number; readonly waited: number }> {
  const pairs = pairsOf(templates);
  const still = pairs.filter((pair) => !movesClock(pair));
  const batches: (readonly Pair[])[] = [];
  for (let at = 0; at < still.length; at += askEvery) batches.push(still.slice(at, at + askEvery));
  let waited = 0;
  for (const batch of batches) {
    await runAll(batch, 3, async (pair) => {
      if ((await race(world, pair)).waited) waited += 1;
    });
    await askAndForget(world, templates);
  }
  // The clock is everybody's: who moves it is alone.
  await runAll(pairs.filter(movesClock), 1, async (pair) => {
    try {
      if ((await race(world, pair)).waited) waited += 1;
    } finally {
      await world.setClock(0);
    }
  });
  await askAndForget(world, templates);
  return { pairs: pairs.length, waited };
}

export async function askAndForget(
  world: JobWorld,
  templates: ReadonlyMap<string, StoredJob>,
): Promise<void> {
  await askStore(world);
  await world.forgetOthers([...templates.values()]);
}

export async function askStore(world: JobWorld): Promise<void> {
  await stampAll(world.bench.db, 1_000);
  await assertInvariantsOf(world.bench.db);
}

/** As the server counts them. Closes the pools, whose connections report what they counted at their end. */
export async function deadlocksOf(world: JobWorld): Promise<number> {
  await world.bench.db.pools.close();
  const { rows } = await world.superuser.query<{ deadlocks: number }>(
    "select deadlocks::integer from pg_stat_database where datname = current_database()",
  );
  return rows[0]?.deadlocks ?? 0;
}
