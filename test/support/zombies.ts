import assert from "node:assert/strict";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import type { JobId } from "../../src/core/ids.ts";
import type { ExternalObject } from "../../src/core/runtime.port.ts";
import { sweepOnce } from "../../src/sandboxes/sweep.ts";
import type { JobSubmission } from "../../src/wire/job.ts";
import { type Arena, type ArenaScope, type ControllerProcess, openArena } from "./arena.ts";
import { type ControllerHost, openControllerHost, runtimeOf } from "./controller-host.ts";
import type { HeldRequest } from "./kubernetes/held-requests.ts";
import { markedJob, publishingPhases, publishingSpec } from "./marked-job.ts";
import { assertExactlyOnce, assertNothingLeft, untilCleaned } from "./settled.ts";
import { until } from "./until.ts";

// A controller is suspended with SIGSTOP at a named moment until its lease has run out and another has taken
// over. Resumed, it goes on where it was, and is deaf to the loss of its lease: database and outside refuse it.
// At a moment of the world (`api …`) a request of it is under way meanwhile, and arrives when all that is over.

const leaseMs = 1_500;
/** How many scenarios run at once, each on a store of its own. */
const lanes = 3;

export interface Zombie {
  readonly at: string;
  readonly nth?: number;
  /**
   * When it is resumed: while the other runs the phase, after the other has brought everything to its end, or
   * after the other has found it cancelled and cleaned up.
   */
  readonly resumed: "while it runs" | "after its end" | "after its cancellation";
  readonly publishes?: true;
  /** What of the resumed one is refused, by the database (`fenced`) or by the outside. Null: it asks for nothing. */
  readonly refused: readonly [what: string, why: string] | null;
  /** Another is killed here first: this one has taken over from it. */
  readonly before?: string;
  /** What the request that was under way is answered when it arrives: `HTTP 422`. */
  readonly answered?: number;
  /** It is cancelled once its phase has started, which is what the moment is about. */
  readonly cancelled?: true;
  /** How often the phase's command starts, whoever starts it. */
  readonly starts: number;
}

export const whileItRuns = { resumed: "while it runs", starts: 1 } as const;
export const afterItsEnd = { resumed: "after its end", starts: 1 } as const;
export const afterItsCancellation = { resumed: "after its cancellation", starts: 0 } as const;

/** Wherever its sandboxes run. */
export const zombies: readonly Zombie[] = [
  // Before hold.
  { at: "begin advancePhase", ...whileItRuns, refused: ["advancePhase", "fenced"] },
  { at: "call runtime.prepare", ...whileItRuns, refused: ["runtime.prepare", "superseded"] },
  { at: "call runtime.prepare", ...afterItsCancellation, refused: ["sandbox.held", "fenced"] },
  // After prepare, before recordResource.
  { at: "begin sandbox.held", ...whileItRuns, refused: ["sandbox.held", "fenced"] },
  { at: "begin sandbox.held", ...afterItsCancellation, refused: ["sandbox.held", "fenced"] },
  // Before release, in the record and outside.
  { at: "begin sandbox.released", ...whileItRuns, refused: ["sandbox.released", "fenced"] },
  { at: "begin sandbox.released", ...afterItsCancellation, refused: ["sandbox.released", "fenced"] },
  { at: "call runtime.release", ...whileItRuns, refused: ["runtime.release", "superseded"] },
  { at: "call runtime.release", ...afterItsCancellation, refused: ["runtime.release", "gone"] },
  // While watching.
  { at: "begin appendProgress", ...whileItRuns, refused: ["appendProgress", "fenced"] },
  { at: "returned runtime.changed", ...afterItsEnd, refused: null },
  { at: "begin sandbox.stopped", ...afterItsEnd, refused: ["sandbox.stopped", "fenced"] },
  { at: "begin recordLogEnd", ...afterItsEnd, refused: ["recordLogEnd", "fenced"] },
  // Before finish.
  { at: "begin advancePhase", nth: 2, ...afterItsEnd, refused: ["advancePhase", "fenced"] },
  { at: "begin finishExecution", ...afterItsEnd, refused: ["finishExecution", "fenced"] },
  {
    at: "call blobs.verify",
    nth: 3,
    ...afterItsEnd,
    publishes: true,
    refused: ["finishExecution", "fenced"],
  },
  // While cleaning.
  { at: "begin sandbox.removed", ...afterItsEnd, refused: ["sandbox.removed", "fenced"] },
  { at: "begin markExecutionCleaned", ...afterItsEnd, refused: ["markExecutionCleaned", "fenced"] },
];

/** The phase waits for this file, so that a test decides when it ends. */
const gateOf = (arena: Arena) => join(arena.shared.directory, "gate");

function jobFor(arena: Arena, { at, publishes, resumed }: Zombie): JobSubmission {
  if (publishes === true) return markedJob(arena, "zombie", publishingPhases, publishingSpec);
  const gate = `echo here; while [ ! -e '${gateOf(arena)}' ]; do sleep 0.05; done`;
  // Otherwise long enough for a look that finds it running, on a busy machine too, where that is the moment.
  const run = at.endsWith("runtime.changed") ? "echo here; sleep 6" : "echo here; sleep 1.5";
  return markedJob(arena, "zombie", [{ run: resumed === "while it runs" ? gate : run }]);
}

async function suspendAndResume(arena: Arena, zombie: Zombie): Promise<void> {
  const { at, nth = 1, resumed } = zombie;
  const held = at.startsWith("api ") ? (arena.world.hold?.(at, nth, "") ?? null) : null;
  const open = () =>
    arena.controller({ stops: held === null ? [{ moment: at, nth, how: "wait", tenant: "" }] : [] });
  const submit = () => arena.submit(jobFor(arena, zombie));
  const taken = zombie.before === undefined ? null : await leftBehind(arena, zombie.before, submit);
  const first = await open();
  const job = taken ?? (await submit());
  if (zombie.cancelled === true) {
    await until("it runs", async () => (await arena.marks(job)).length > 0);
    await arena.cancel(job);
  }
  await (held === null ? first.heard("at") : held.reached);
  first.signal("SIGSTOP");
  if (resumed === "after its cancellation") await arena.cancel(job);
  const successor = await openControllerHost(arena.shared);
  try {
    arena.relay.point(successor.port);
    await takenOver(arena, successor);
    if (resumed === "while it runs") {
      await until("the other runs it", async () => (await arena.marks(job)).length > 0);
    } else await untilCleaned(arena, [job]);

    const before = await versions(arena);
    await resume(first, held, zombie);
    if (resumed !== "while it runs") assert.deepEqual(await versions(arena), before, "it changed nothing");

    await writeFile(gateOf(arena), "");
    await untilCleaned(arena, [job]);
    await first.close();
    await assertOnce(arena, job, zombie);
    await sweepLate(arena, zombie);
    await assertNothingLeft(arena);
  } finally {
    arena.relay.point(null);
    await successor.close();
    await rm(gateOf(arena), { force: true });
  }
}

/** A job whose first controller died at this moment. */
async function leftBehind(arena: Arena, moment: string, submit: () => Promise<JobId>): Promise<JobId> {
  const predecessor = await arena.controller({ stops: [{ moment, nth: 1, how: "kill", tenant: "" }] });
  const job = await submit();
  await predecessor.ended;
  return job;
}

async function resume(first: ControllerProcess, held: HeldRequest | null, zombie: Zombie): Promise<void> {
  if (held !== null) assert.equal(await held.go(), zombie.answered, "the answer of the late request");
  first.go();
  first.signal("SIGCONT");
  await isRefused(first, zombie);
  // Nothing but its end tells that it is through with the answer.
  if (held !== null) await first.close();
}

async function assertOnce(arena: Arena, job: JobId, zombie: Zombie): Promise<void> {
  const cancelled = zombie.resumed === "after its cancellation" || zombie.cancelled === true;
  await assertExactlyOnce(arena, job, { state: cancelled ? "cancelled" : "succeeded", attempts: 1 });
  const phases = zombie.publishes === true ? publishingPhases.length : 1;
  assert.equal((await arena.marks(job)).length, zombie.starts * phases, "starts outside");
}

function takenOver(arena: Arena, successor: ControllerHost): Promise<unknown> {
  const { holder } = successor.foundation;
  return until("another holds the lease, or is done with it", async () => {
    const [row] = await arena.rows<{ holder: string | null }>(
      "select holder from holdfast.leases where kind = 'execution'",
    );
    return row === undefined || row.holder === holder;
  });
}

/** It asks for this and is refused. That it changed nothing by anything else shows in the record. */
async function isRefused(zombie: ControllerProcess, { refused }: Zombie): Promise<void> {
  if (refused === null) return;
  const [what, why] = refused;
  await zombie.heard("refused", (news) => news.what === what && news.why === why);
}

/** What the record says of everything: any write moves one of these. */
function versions(arena: Arena): Promise<unknown[]> {
  return arena.rows(
    `select (select count(*) from holdfast.resource_changes) as changes,
       (select count(*) from holdfast.log_chunks) as chunks,
       (select jsonb_agg(to_jsonb(a) order by a.attempt_id) from holdfast.execution_attempts a) as attempts,
       (select jsonb_agg(to_jsonb(p) order by p.attempt_id, p.number) from holdfast.execution_phases p) as phases,
       (select jsonb_agg(to_jsonb(s) order by s.sandbox_id) from holdfast.sandbox_attempts s) as sandboxes`,
  );
}

/** An object made after everything was cleaned up: it is held, is listed with its owner, and goes without having run. */
async function sweepLate(arena: Arena, { at, resumed }: Zombie): Promise<void> {
  const late = at === "call runtime.prepare" || at === "api create received";
  if (!late || resumed !== "after its cancellation") return;
  const runtime = runtimeOf(arena.shared);
  const { signal } = new AbortController();
  const listed: ExternalObject[] = [];
  for await (const object of runtime.list(signal)) listed.push(object);
  const owners = await arena.rows<{ sandbox_id: string }>(
    "select sandbox_id from holdfast.sandbox_attempts where uid is null",
  );
  assert.deepEqual(
    listed.map((object) => object.sandbox),
    owners.slice(-1).map((row) => row.sandbox_id),
  );
  for (const object of listed) assert.equal((await runtime.observe(object, signal)).state, "held");
  const suspects = new Map<string, number>();
  const options = { db: arena.foundation.db, graceMs: 0, log: () => undefined };
  assert.deepEqual(await sweepOnce(options, runtime, suspects, signal), [], "the first look only suspects");
  const swept = await sweepOnce(options, runtime, suspects, signal);
  assert.deepEqual(
    swept.map(({ uid }) => uid),
    listed.map(({ uid }) => uid),
  );
  await arena.world.assertNoneRun(swept.map(({ uid }) => uid));
}

export function suspendedAtEachMoment(
  title: string,
  zombies: readonly Zombie[],
  open: (scope: ArenaScope, options: { readonly leaseMs: number }) => Promise<Arena> = openArena,
): void {
  describe(title, { concurrency: lanes }, () => {
    const free: Promise<Arena>[] = [];
    const hooks: (() => void | Promise<void>)[] = [];
    after(async () => {
      for (const hook of hooks) await hook();
      console.log(`${zombies.length} zombies`);
    });

    for (const zombie of zombies) {
      const answer = zombie.answered === undefined ? "" : `the late request is answered ${zombie.answered}`;
      const says =
        zombie.refused === null
          ? answer || "it asks for nothing more"
          : `it is refused ${zombie.refused.join(": ")}`;
      test(`at "${zombie.at}", ${zombie.resumed}: ${says}`, async () => {
        const arena = await (free.pop() ?? open({ after: (hook) => void hooks.push(hook) }, { leaseMs }));
        await suspendAndResume(arena, zombie);
        free.push(Promise.resolve(arena));
      });
    }
  });
}
