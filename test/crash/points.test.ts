import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import type { JobId } from "../../src/core/ids.ts";
import type { JobSubmission } from "../../src/wire/job.ts";
import { type Arena, type ControllerProcess, openArena } from "../support/arena.ts";
import { openControllerHost } from "../support/controller-host.ts";
import { markedJob, publishingPhases, publishingSpec } from "../support/marked-job.ts";
import { assertExactlyOnce, assertNothingLeft, untilCleaned } from "../support/settled.ts";
import { until } from "../support/until.ts";

// Every point of the controller's loop: a process is killed with SIGKILL there, another takes over once the
// lease has run out, and everything converges with exactly one start of each phase, in the record and outside.
// The lists are closed: a run without a kill shows that the loop has no moment that is not in them.
//
// Before a commit and before a call, a kill leaves the same as after the one before. So unless
// HOLDFAST_TEST_CRASH_POINTS=all, those are tried only where an effect follows that nothing may repeat.

const tryAll = process.env["HOLDFAST_TEST_CRASH_POINTS"] === "all";
const triedBefore = new Set([
  "commit startExecution",
  "commit sandbox.held",
  "commit sandbox.released",
  "commit finishExecution",
  "call runtime.prepare",
  "call runtime.release",
  "call runtime.stop",
  "call blobs.remove",
  "commit recordLogArchive",
  "commit deleteLogChunks",
]);

/** How many scenarios run at once. Each has a store of its own; much of their time is waiting. */
const lanes = 3;
const leaseMs = 1_500;

interface Scenario {
  readonly name: string;
  readonly job: (arena: Arena) => JobSubmission;
  /** What happens to the job while the first controller has it. */
  readonly meanwhile?: (arena: Arena, job: JobId) => Promise<void>;
  readonly expected: { readonly state: string; readonly attempts: number };
  readonly moments: readonly string[];
  /** The first is killed here, and the one that takes over at the moment in question. */
  readonly before?: string;
}

const around = (...transitions: string[]) =>
  transitions.flatMap((name) => [`commit ${name}`, `committed ${name}`]);
const outside = (...calls: string[]) => calls.flatMap((name) => [`call ${name}`, `returned ${name}`]);

const started = (arena: Arena, job: JobId) =>
  until("its phase has started", async () => (await arena.marks(job)).length > 0);

const scenarios: readonly Scenario[] = [
  {
    name: "a build of one phase",
    // Long enough for a look that finds it running.
    job: (arena) => markedJob(arena, "plain", [{ run: "echo done; sleep 0.3" }]),
    expected: { state: "succeeded", attempts: 1 },
    moments: [
      ...around("claim admissions", "startExecution", "advancePhase", "sandbox.held", "sandbox.released"),
      ...around("appendProgress", "sandbox.stopped", "recordLogEnd", "finishExecution", "sandbox.removed"),
      ...around("recordLogArchive", "deleteLogChunks", "markExecutionCleaned", "advancePhase#2"),
      ...outside("blobs.put"),
      ...outside("runtime.prepare", "runtime.release", "runtime.observe", "runtime.observe#2"),
      ...outside("runtime.changed", "runtime.logs", "runtime.remove", "runtime.secretValues"),
    ],
  },
  {
    name: "a build that publishes",
    job: (arena) => markedJob(arena, "publishing", publishingPhases, publishingSpec),
    expected: { state: "succeeded", attempts: 1 },
    moments: [
      ...around("recordSourcePins", "promiseObject", "completeObject", "declareArtifact"),
      ...around("finishExecution", "markObjectRemoved", "advancePhase#2"),
      ...outside("blobs.grantUpload", "blobs.verify", "blobs.remove"),
    ],
  },
  {
    name: "a build that is cancelled while it runs",
    job: (arena) => markedJob(arena, "cancelled", [{ run: "sleep 60" }]),
    async meanwhile(arena, job) {
      await started(arena, job);
      await arena.cancel(job);
    },
    expected: { state: "cancelled", attempts: 1 },
    moments: [
      ...around("sandbox.stopping", "sandbox.stopped", "finishExecution"),
      ...outside("runtime.stop"),
    ],
  },
  {
    name: "a build whose first attempt fails",
    job: (arena) => markedJob(arena, "retried", [{ run: '[ "$HOLDFAST_ATTEMPT" = 2 ]' }], { attempts: 2 }),
    expected: { state: "succeeded", attempts: 2 },
    moments: around("finishExecution", "claim admissions#2", "startExecution#2"),
  },
  {
    name: "a takeover",
    before: "returned runtime.release",
    job: (arena) => markedJob(arena, "taken-over", [{ run: "sleep 0.2" }]),
    expected: { state: "succeeded", attempts: 1 },
    moments: [...around("claim execution leases"), ...outside("runtime.fence")],
  },
];

/** `name#2` is its second time. */
function pointOf(moment: string) {
  const [name = "", nth = "1"] = moment.split("#");
  return { moment: name, nth: Number(nth), how: "kill" } as const;
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

async function crash(arena: Arena, scenario: Scenario, moment: string): Promise<void> {
  const first = await arena.controller({ stop: pointOf(scenario.before ?? moment) });
  const job = await arena.submit(scenario.job(arena));
  const meanwhile = scenario.meanwhile?.(arena, job);
  await killed(arena, first, job);
  await meanwhile;
  if (scenario.before !== undefined) {
    await killed(arena, await arena.controller({ stop: pointOf(moment) }), job);
  }
  const successor = await openControllerHost(arena.shared);
  try {
    arena.relay.point(successor.port);
    await untilCleaned(arena, [job]);
    await assertExactlyOnce(arena, job, scenario.expected);
    await assertNothingLeft(arena);
  } finally {
    arena.relay.point(null);
    await successor.close();
  }
}

describe("E3 E5 E6 E7 E10 S12: SIGKILL at each point of the controller's loop", {
  concurrency: lanes,
}, () => {
  const all = scenarios.flatMap((scenario) => scenario.moments.map((moment) => ({ scenario, moment })));
  const isTried = (moment: string) => tryAll || triedBefore.has(moment) || !/^(commit|call) /.test(moment);
  const points = all.filter(({ moment }) => isTried(moment));
  const free: Promise<Arena>[] = [];
  const hooks: (() => void | Promise<void>)[] = [];
  after(async () => {
    for (const hook of hooks) await hook();
    console.log(`killed at ${points.length} of ${all.length} crash points`);
  });

  for (const { scenario, moment } of points) {
    test(`${scenario.name}: at "${moment}"`, async () => {
      // As many stores as scenarios at once; one that failed is not used again.
      const arena = await (free.pop() ?? openArena({ after: (hook) => void hooks.push(hook) }, { leaseMs }));
      await crash(arena, scenario, moment);
      free.push(Promise.resolve(arena));
    });
  }

  test("no moment of the loop is missing above", async (t) => {
    const arena = await openArena(t);
    const controller = await arena.controller({ tell: true });
    for (const { job: make, meanwhile } of scenarios) {
      const job = await arena.submit(make(arena));
      await meanwhile?.(arena, job);
      await untilCleaned(arena, [job]);
    }
    await controller.close();
    // The sweep of orphans, which looks at all objects when it starts, has tests of its own.
    const known = new Set(["call runtime.list", "returned runtime.list"]);
    for (const { moment } of all) known.add(pointOf(moment).moment);
    const seen = controller.news.flatMap((news) => (news.is === "seen" ? [news.moment] : []));
    const missing = seen.filter((moment) => !moment.startsWith("begin ") && !known.has(moment));
    assert.deepEqual([...new Set(missing)], []);
  });
});
