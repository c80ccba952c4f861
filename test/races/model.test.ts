import assert from "node:assert/strict";
import { after, test } from "node:test";
import * as fc from "fast-check";
import { claimLeases } from "../../src/core/lease.store.ts";
import { claimWaiting } from "../../src/executions/admission.store.ts";
import { executionKind } from "../../src/executions/attempt.store.ts";
import { commit } from "../support/attempts.ts";
import { apply, type JobModel, modelPhases, type Operation, operations } from "../support/job-model.ts";
import { leaseOf, perform } from "../support/job-operations.ts";
import { allowed, askStore } from "../support/job-races.ts";
import { declare, expireLeases } from "../support/job-states.ts";
import { type JobWorld, openJobWorld, type StoredJob } from "../support/job-world.ts";

const jobsAtOnce = 6;
const operationsMin = 1_000;
const askEvery = 50;

/** One job: as it is, and as somebody still remembers it. */
interface Remembered {
  now: StoredJob;
  before: StoredJob;
}

interface Run {
  readonly jobs: Remembered[];
  readonly counts: Map<string, number>;
  done: number;
}

/** What one step does, drawn in advance; which operation that is depends on the job when its turn comes. */
interface Drawn {
  readonly job: number;
  readonly pick: number;
  readonly way: "forward" | "anything" | "remembered" | "crash" | "remember" | "late";
}

const drawn: fc.Arbitrary<Drawn> = fc.record({
  job: fc.nat({ max: jobsAtOnce - 1 }),
  pick: fc.nat({ max: 10_000 }),
  way: fc.oneof(
    { weight: 60, arbitrary: fc.constant("forward" as const) },
    { weight: 15, arbitrary: fc.constant("anything" as const) },
    { weight: 15, arbitrary: fc.constant("remembered" as const) },
    { weight: 6, arbitrary: fc.constant("crash" as const) },
    { weight: 8, arbitrary: fc.constant("remember" as const) },
    { weight: 1, arbitrary: fc.constant("late" as const) },
  ),
});

/** Time is moved for all jobs at once, so its operation is left out; `late` ends the time of one. */
const timeless = operations.filter((operation) => operation !== "deadline");
const isOver = ({ state, attempts }: JobModel) =>
  ["succeeded", "failed", "cancelled"].includes(state) && attempts.every(({ lease }) => lease === null);

class Step implements fc.AsyncCommand<Run, JobWorld> {
  readonly drawn: Drawn;
  constructor(step: Drawn) {
    this.drawn = step;
  }

  check(): boolean {
    return true;
  }

  toString(): string {
    return JSON.stringify(this.drawn);
  }

  async run(run: Run, world: JobWorld): Promise<void> {
    const remembered = run.jobs[this.drawn.job];
    assert(remembered !== undefined);
    const what = await this.#act(world, remembered);
    run.counts.set(what, (run.counts.get(what) ?? 0) + 1);
    if (isOver(remembered.now.model)) {
      const now = await world.submit();
      Object.assign(remembered, { now, before: now });
    }
    run.done += 1;
    if (run.done % askEvery === 0) await askStore(world);
  }

  async #act(world: JobWorld, remembered: Remembered): Promise<string> {
    const { now } = remembered;
    switch (this.drawn.way) {
      case "remember":
        remembered.before = now;
        return "remember";
      case "crash":
        return this.#crash(world, remembered);
      case "late":
        return this.#late(world, remembered);
      case "forward":
        return this.#forward(world, remembered);
      case "anything":
        return this.#operate(world, remembered, pickOf(timeless, this.drawn.pick), now);
      case "remembered":
        return this.#operate(world, remembered, pickOf(timeless, this.drawn.pick), remembered.before);
      default:
        return this.drawn.way satisfies never;
    }
  }

  /** Whoever has it is dead, and the one who knows how to go on takes it. */
  async #crash(world: JobWorld, remembered: Remembered): Promise<string> {
    const { now } = remembered;
    await expireLeases(world, now);
    const { db } = world.bench;
    const holder = world.holders.one;
    const queue = now.plan.runtime;
    await claimLeases(db, { kind: executionKind, queue, holder, limit: 2, quota: 2, leaseUs: world.leaseUs });
    await claimWaiting(db, { pool: now.plan.pool, holder, limit: 1, leaseUs: world.leaseUs });
    const { admission, attempts } = now.model;
    const taken = { holder: "one", expired: false } as const;
    const full = attempts.some(({ slot }) => slot);
    const expected: JobModel = {
      ...now.model,
      admission: admission === null || full ? admission : taken,
      attempts: attempts.map((attempt) => (attempt.lease === null ? attempt : { ...attempt, lease: taken })),
    };
    remembered.now = await world.read(now.job);
    assert.deepEqual(remembered.now.model, expected, "crash");
    return "crash";
  }

  async #late(world: JobWorld, remembered: Remembered): Promise<string> {
    const { model, attempts } = remembered.now;
    const ids = attempts.filter((_, index) => model.attempts[index]?.state === "active").map(({ id }) => id);
    await world.superuser.query("select test.end_time($1)", [ids]);
    remembered.now = await world.read(remembered.now.job);
    return "late";
  }

  /** What a controller decides; or anything that is possible now. */
  async #forward(world: JobWorld, remembered: Remembered): Promise<string> {
    const { now } = remembered;
    // A cancelled job is soon over: most are not.
    const possible = timeless.filter(
      (operation) => allowed(operation, now.model) && (operation !== "cancel" || this.drawn.pick % 32 === 0),
    );
    if (this.drawn.pick % 4 === 0 && possible.length > 0) {
      return this.#operate(world, remembered, pickOf(possible, this.drawn.pick), now);
    }
    if (allowed("start", now.model)) return this.#operate(world, remembered, "start", now);
    const attempt = now.model.attempts.at(-1);
    const own = attempt?.lease?.holder === "one" && !attempt.lease.expired;
    // The job waits, or the attempt, or an attempt before the last is not cleaned yet.
    if (!own || now.model.admission !== null) return this.#crash(world, remembered);
    if (publishes(now.model)) await declare(world, now);
    const { do: step } = await world.bench.step(leaseOf(world, now), { pins: { engine: commit } });
    remembered.now = await world.read(now.job);
    return step;
  }

  async #operate(
    world: JobWorld,
    remembered: Remembered,
    operation: Operation,
    known: StoredJob,
  ): Promise<string> {
    const { now } = remembered;
    const next = apply(operation, known.model, now.model);
    if (next === null) return "nothing";
    const expected = staleEpoch(operation, known, now) ?? next.result;
    const job = expected === next.result ? next.job : now.model;
    const result = await perform(world, world.bench.db, operation, known);
    remembered.now = await world.read(now.job);
    assert.deepEqual([result, remembered.now.model], [expected, job], operation);
    return `${operation}: ${result}`;
  }
}

/** Who remembers an older epoch is refused, whoever holds the lease now (E6). */
function staleEpoch(operation: Operation, known: StoredJob, now: StoredJob): string | null {
  if (unfenced.has(operation)) return null;
  if (operation === "start") {
    const repeats = apply(operation, known.model, now.model)?.result === "existing";
    return known.admissionEpoch === now.admissionEpoch || repeats ? null : "fenced";
  }
  const at = known.attempts.length - 1;
  if (known.attempts[at]?.epoch === now.attempts[at]?.epoch) return null;
  return operation === "renew" ? "lost" : "fenced";
}

const unfenced: ReadonlySet<Operation> = new Set(["admit", "lease", "cancel", "patch", "pins"]);

/** The publish phase runs, and has not declared its artifact. */
function publishes({ attempts }: JobModel): boolean {
  const attempt = attempts.at(-1);
  const sandbox = attempt?.sandboxes.at(-1);
  if (attempt === undefined || sandbox === undefined) return false;
  const kind = modelPhases[sandbox.phase]?.kind;
  return kind === "publish" && sandbox.state === "released" && !attempt.declared && !attempt.overdue;
}

function pickOf<T>(from: readonly T[], pick: number): T {
  const one = from[pick % from.length];
  assert(one !== undefined);
  return one;
}

const world = await openJobWorld({ after });

test("E1-E14: a thousand random operations with crashes and stale memories do what the model says", async (t) => {
  const counts = new Map<string, number>();
  const commands = fc.array(
    drawn.map((step) => new Step(step)),
    { minLength: operationsMin, maxLength: operationsMin },
  );
  await fc.assert(
    fc.asyncProperty(commands, async (steps) => {
      const jobs: Remembered[] = [];
      for (let made = 0; made < jobsAtOnce; made += 1) {
        const now = await world.submit();
        jobs.push({ now, before: now });
      }
      await fc.asyncModelRun(() => ({ model: { jobs, counts, done: 0 }, real: world }), steps);
      await askStore(world);
    }),
    // A shorter sequence is found by its seed; to shrink a thousand real operations would take hours.
    { numRuns: 1, endOnFailure: true },
  );
  const [{ rows: states }, [jobs]] = await Promise.all([
    world.superuser.query<{ state: string; jobs: number }>(
      "select state, count(*)::int as jobs from holdfast.jobs group by state order by state",
    ),
    world.bench.kernel.ask<{ jobs: number }>("select count(*)::int as jobs from holdfast.jobs"),
  ]);
  t.diagnostic(`${jobs?.jobs ?? 0} jobs: ${states.map((row) => `${row.jobs} ${row.state}`).join(", ")}`);
  t.diagnostic(
    [...counts]
      .map(([what, times]) => `${what} ${times}`)
      .toSorted((a, b) => a.localeCompare(b))
      .join(", "),
  );
});
