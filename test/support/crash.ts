import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import type { JobId, TenantId } from "../../src/core/ids.ts";
import { type Arena, type ArenaScope, type ControllerProcess, openArena } from "./arena.ts";
import { openControllerHost } from "./controller-host.ts";
import type { Scenario } from "./crash-scenarios.ts";
import type { HeldRequest } from "./kubernetes/held-requests.ts";
import { assertExactlyOnce, assertNothingLeft, untilCleaned } from "./settled.ts";
import { until } from "./until.ts";

// Every point of the controller's loop: a process is killed with SIGKILL there, another takes over once the
// lease has run out, and everything converges with exactly one start of each phase, in the record and outside.
// Several attempts are brought each to a point of its own before one kill ends them all.

/** How many kills at once, each on a store of its own; much of their time is waiting. */
const lanes = 2;

/** `name#2` is its second time. */
export function pointOf(moment: string) {
  const [name = "", nth = "1"] = moment.split("#");
  return { moment: name, nth: Number(nth) };
}

/** Moments of the world itself: there it holds up a request, and the controller waits for its answer. */
const isOutside = (moment: string) => moment.startsWith("api ");

export interface CrashOptions {
  readonly open: (scope: ArenaScope, options: { readonly leaseMs: number }) => Promise<Arena>;
  /** Attempts that one kill ends. */
  readonly batchMax: number;
  /** Those of them that stand at a commit, and so hold a connection. */
  readonly commitsMax: number;
  /** Of a controller: it must keep it on a busy machine while a batch is brought to its points. */
  readonly leaseMs: number;
}

const processes: CrashOptions = { open: openArena, batchMax: 6, commitsMax: 6, leaseMs: 4_000 };

interface Victim {
  readonly scenario: Scenario;
  readonly moment: string;
}

/** Batches over all scenarios; those that stand alone last. */
function batches(
  scenarios: readonly Scenario[],
  { batchMax, commitsMax }: CrashOptions,
): readonly (readonly Victim[])[] {
  const together = scenarios.flatMap((scenario) => scenario.moments.map((moment) => ({ scenario, moment })));
  const isCommit = ({ moment }: Victim) => /^commit(ted)? /.test(moment);
  const commits = together.filter(isCommit);
  const others = together.filter((victim) => !isCommit(victim));
  const count = Math.ceil(Math.max(commits.length / commitsMax, together.length / batchMax));
  // Where any batch may be all commits they stay in order; else each batch gets its share of both.
  const dealt = Array.from({ length: count }, (_, batch) =>
    batchMax <= commitsMax
      ? together.slice(batch * batchMax, (batch + 1) * batchMax)
      : [...commits, ...others].filter((_victim, index) => index % count === batch),
  );
  const single = scenarios.flatMap((scenario) =>
    (scenario.alone ?? []).map((moment) => [{ scenario, moment }]),
  );
  return [...dealt, ...single];
}

async function crash(arena: Arena, victims: readonly Victim[], round: number): Promise<void> {
  const jobs = await Promise.all(
    victims.map(async (victim, index) => ({
      ...victim,
      tenant: await arena.addTenant(`round-${round}-${index}`),
    })),
  );
  await allowSlots(arena, victims.length);
  const [only] = jobs;
  if (jobs.length === 1 && only !== undefined) return crashAlone(arena, only);
  const inside = jobs.filter(({ moment }) => !isOutside(moment));
  const victim = await arena.controller({
    stops: inside.map(({ moment, tenant }) => ({ ...pointOf(moment), how: "wait", tenant })),
  });
  const held = jobs
    .filter(({ moment }) => isOutside(moment))
    .map(({ moment, tenant }) => holdOutside(arena, moment, tenant));
  const submitted = await Promise.all(
    jobs.map(async (job) => ({ ...job, job: await arena.submit(job.scenario.job(arena), job.tenant) })),
  );
  const meanwhile = Promise.all(
    submitted.map(async ({ scenario, job, tenant }) => scenario.meanwhile?.(arena, job, tenant)),
  );
  const reached = [
    ...inside.map(({ tenant }) => victim.heard("at", (news) => news.tenant === tenant)),
    ...held.map((request) => request.reached),
  ];
  const points = [...inside, ...jobs.filter(({ moment }) => isOutside(moment))];
  await Promise.all(points.map(({ moment }, index) => comes(moment, reached[index])));
  victim.signal("SIGKILL");
  assert.equal(await victim.ended, "SIGKILL");
  for (const { drop } of held) drop();
  await meanwhile;
  await converge(arena, submitted);
}

/** A moment that does not come is named. */
async function comes(moment: string, reached: Promise<unknown> | undefined): Promise<void> {
  let came = false;
  void reached?.then(
    () => {
      came = true;
    },
    () => undefined,
  );
  await until(`"${moment}" comes`, () => came, 90_000);
}

type Lonely = Victim & { readonly tenant: TenantId };

/** One kill for one moment, by the process itself or at a request that it made. */
async function crashAlone(arena: Arena, { scenario, moment, tenant }: Lonely): Promise<void> {
  const kill = async (at: string, ended: (victim: ControllerProcess) => Promise<unknown>) => {
    const held = isOutside(at) ? holdOutside(arena, at, "") : null;
    const victim = await arena.controller({
      stops: held === null ? [{ ...pointOf(at), how: "kill", tenant: "" }] : [],
    });
    void held?.reached.then(() => victim.signal("SIGKILL"));
    await ended(victim);
    held?.drop();
  };
  let job: JobId | null = null;
  const first = scenario.before ?? moment;
  await kill(first, async (victim) => {
    job = await arena.submit(scenario.job(arena), tenant);
    const meanwhile = scenario.before === undefined ? scenario.meanwhile?.(arena, job, tenant) : null;
    await killed(arena, victim, job);
    await meanwhile;
  });
  assert.ok(job !== null);
  const submitted: JobId = job;
  if (scenario.before !== undefined) {
    await scenario.meanwhile?.(arena, submitted, tenant);
    await kill(moment, (victim) => killed(arena, victim, submitted));
  }
  await converge(arena, [{ scenario, moment, job: submitted }]);
}

function holdOutside(arena: Arena, moment: string, tenant: string): HeldRequest {
  const point = pointOf(moment);
  const held = arena.world.hold?.(point.moment, point.nth, tenant);
  assert.ok(held !== undefined, `nobody can be held up at ${moment}`);
  return held;
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

export function crashAtEachPoint(
  title: string,
  scenarios: readonly Scenario[],
  options: CrashOptions = processes,
): void {
  describe(title, { concurrency: lanes }, () => {
    const free: Promise<Arena>[] = [];
    const hooks: (() => void | Promise<void>)[] = [];
    const all = batches(scenarios, options);
    after(async () => {
      for (const hook of hooks) await hook();
      console.log(`killed at ${all.flat().length} points in ${all.length} kills`);
    });
    for (const [round, victims] of all.entries()) {
      const points = victims.map(({ scenario, moment }) => `${moment} (${scenario.name})`);
      test(points.join(", "), async () => {
        // As many stores as kills at once; one that failed is not used again.
        const arena = await (free.pop() ??
          options.open({ after: (hook) => void hooks.push(hook) }, { leaseMs: options.leaseMs }));
        await crash(arena, victims, round);
        free.push(Promise.resolve(arena));
      });
    }
  });
}
