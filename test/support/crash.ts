import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import type { JobId } from "../../src/core/ids.ts";
import { type Arena, type ControllerProcess, openArena } from "./arena.ts";
import { openControllerHost } from "./controller-host.ts";
import type { Scenario } from "./crash-scenarios.ts";
import { assertExactlyOnce, assertNothingLeft, untilCleaned } from "./settled.ts";
import { until } from "./until.ts";

// Every point of the controller's loop: a process is killed with SIGKILL there, another takes over once the
// lease has run out, and everything converges with exactly one start of each phase, in the record and outside.
// Several attempts are brought each to a point of its own before one kill ends them all.

/** Attempts that one kill ends. */
const batchMax = 6;
/** How many kills at once, each on a store of its own; much of their time is waiting. */
const lanes = 2;
/** Longer than it takes to bring a batch to its points. */
const leaseMs = 4_000;

/** `name#2` is its second time. */
export function pointOf(moment: string) {
  const [name = "", nth = "1"] = moment.split("#");
  return { moment: name, nth: Number(nth) };
}

interface Victim {
  readonly scenario: Scenario;
  readonly moment: string;
}

/** Batches over all scenarios, in order; those that stand alone last. */
function batches(scenarios: readonly Scenario[]): readonly (readonly Victim[])[] {
  const together = scenarios.flatMap((scenario) => scenario.moments.map((moment) => ({ scenario, moment })));
  const cut: Victim[][] = [];
  for (let at = 0; at < together.length; at += batchMax) cut.push(together.slice(at, at + batchMax));
  const single = scenarios.flatMap((scenario) =>
    (scenario.alone ?? []).map((moment) => [{ scenario, moment }]),
  );
  return [...cut, ...single];
}

async function crash(arena: Arena, victims: readonly Victim[], round: number): Promise<void> {
  const jobs = await Promise.all(
    victims.map(async (victim, index) => ({
      ...victim,
      tenant: await arena.addTenant(`round-${round}-${index}`),
    })),
  );
  await allowSlots(arena, victims.length);
  const alone = jobs.length === 1;
  const [only] = jobs;
  if (alone && only?.scenario.before !== undefined) {
    const first = await arena.controller({
      stops: [{ ...pointOf(only.scenario.before), how: "kill", tenant: "" }],
    });
    const job = await arena.submit(only.scenario.job(arena), only.tenant);
    await killed(arena, first, job);
    await killed(
      arena,
      await arena.controller({ stops: [{ ...pointOf(only.moment), how: "kill", tenant: "" }] }),
      job,
    );
    return converge(arena, [{ ...only, job }]);
  }
  const victim = await arena.controller({
    stops: jobs.map(({ moment, tenant }) =>
      alone ? { ...pointOf(moment), how: "kill", tenant: "" } : { ...pointOf(moment), how: "wait", tenant },
    ),
  });
  const submitted = await Promise.all(
    jobs.map(async (job) => ({ ...job, job: await arena.submit(job.scenario.job(arena), job.tenant) })),
  );
  const meanwhile = Promise.all(
    submitted.map(async ({ scenario, job, tenant }) => scenario.meanwhile?.(arena, job, tenant)),
  );
  if (alone) for (const { job } of submitted) await killed(arena, victim, job);
  else {
    await Promise.all(submitted.map(({ tenant }) => victim.heard("at", (news) => news.tenant === tenant)));
    victim.signal("SIGKILL");
    assert.equal(await victim.ended, "SIGKILL");
  }
  await meanwhile;
  await converge(arena, submitted);
}

/** Fails when everything went well without the kill: then the moment does not come. */
async function killed(arena: Arena, victim: ControllerProcess, job: JobId): Promise<void> {
  await Promise.race([victim.ended, untilCleaned(arena, [job])]);
  let end: unknown = "running";
  void victim.ended.then((how) => {
    end = how;
  });
  await until("it is killed, the last thing done", () => end !== "running", 5_000).catch(() => undefined);
  assert.equal(end, "SIGKILL");
}

async function converge(arena: Arena, jobs: readonly (Victim & { readonly job: JobId })[]): Promise<void> {
  const successor = await openControllerHost(arena.shared);
  try {
    arena.relay.point(successor.port);
    await untilCleaned(
      arena,
      jobs.map(({ job }) => job),
    );
    for (const { scenario, job } of jobs) await assertExactlyOnce(arena, job, scenario.expected);
    await assertNothingLeft(arena);
  } finally {
    arena.relay.point(null);
    await successor.close();
  }
}

async function allowSlots(arena: Arena, slots: number): Promise<void> {
  await arena.rows(
    `insert into holdfast.slots (pool, slot) select 'default', generate_series(1, $1::integer)
     on conflict do nothing`,
    [slots],
  );
}

export function crashAtEachPoint(title: string, scenarios: readonly Scenario[]): void {
  describe(title, { concurrency: lanes }, () => {
    const free: Promise<Arena>[] = [];
    const hooks: (() => void | Promise<void>)[] = [];
    const all = batches(scenarios);
    after(async () => {
      for (const hook of hooks) await hook();
      console.log(`killed at ${all.flat().length} points in ${all.length} kills`);
    });
    for (const [round, victims] of all.entries()) {
      const points = victims.map(({ scenario, moment }) => `${moment} (${scenario.name})`);
      test(points.join(", "), async () => {
        // As many stores as kills at once; one that failed is not used again.
        const arena = await (free.pop() ??
          openArena({ after: (hook) => void hooks.push(hook) }, { leaseMs }));
        await crash(arena, victims, round);
        free.push(Promise.resolve(arena));
      });
    }
  });
}
