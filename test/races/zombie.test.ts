import assert from "node:assert/strict";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import type { ExternalObject } from "../../src/core/runtime.port.ts";
import type { JobSubmission } from "../../src/wire/job.ts";
import { type Arena, type ControllerProcess, openArena } from "../support/arena.ts";
import { type ControllerHost, openControllerHost, runtimeOf } from "../support/controller-host.ts";
import { markedJob, publishingPhases, publishingSpec } from "../support/marked-job.ts";
import { assertExactlyOnce, assertNothingLeft, untilCleaned } from "../support/settled.ts";
import { until } from "../support/until.ts";

// A controller is suspended with SIGSTOP at a named moment until its lease has run out and another has taken
// over. Resumed, it goes on where it was, and is deaf to the loss of its lease: database and outside refuse it.

const leaseMs = 1_500;
/** How many scenarios run at once, each on a store of its own. */
const lanes = 3;

interface Zombie {
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
  /** How often the phase's command starts, whoever starts it. */
  readonly starts: number;
}

const whileItRuns = { resumed: "while it runs", starts: 1 } as const;
const afterItsEnd = { resumed: "after its end", starts: 1 } as const;
const afterItsCancellation = { resumed: "after its cancellation", starts: 0 } as const;

const zombies: readonly Zombie[] = [
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

function jobFor(arena: Arena, { publishes, resumed }: Zombie): JobSubmission {
  if (publishes === true) return markedJob(arena, "zombie", publishingPhases, publishingSpec);
  const gate = `echo here; while [ ! -e '${gateOf(arena)}' ]; do sleep 0.05; done`;
  // Otherwise long enough for a look that finds it running, on a busy machine too.
  return markedJob(arena, "zombie", [{ run: resumed === "while it runs" ? gate : "echo here; sleep 1.5" }]);
}

async function suspendAndResume(arena: Arena, zombie: Zombie): Promise<void> {
  const { at, nth = 1, resumed } = zombie;
  const first = await arena.controller({ stops: [{ moment: at, nth, how: "wait", tenant: "" }] });
  const job = await arena.submit(jobFor(arena, zombie));
  await first.heard("at");
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
    first.go();
    first.signal("SIGCONT");
    await isRefused(first, zombie);
    if (resumed !== "while it runs") assert.deepEqual(await versions(arena), before, "it changed nothing");

    await writeFile(gateOf(arena), "");
    await untilCleaned(arena, [job]);
    await first.close();
    const state = resumed === "after its cancellation" ? "cancelled" : "succeeded";
    await assertExactlyOnce(arena, job, { state, attempts: 1 });
    const phases = zombie.publishes === true ? publishingPhases.length : 1;
    assert.equal((await arena.marks(job)).length, zombie.starts * phases, "starts outside");
    await sweepLate(arena, zombie);
    await assertNothingLeft(arena);
  } finally {
    arena.relay.point(null);
    await successor.close();
    await rm(gateOf(arena), { force: true });
  }
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
  if (at !== "call runtime.prepare" || resumed !== "after its cancellation") return;
  const runtime = runtimeOf(arena.shared);
  const { signal } = new AbortController();
  const late: ExternalObject[] = [];
  for await (const object of runtime.list(signal)) late.push(object);
  const owners = await arena.rows<{ sandbox_id: string }>(
    "select sandbox_id from holdfast.sandbox_attempts where uid is null",
  );
  assert.deepEqual(
    late.map((object) => object.sandbox),
    owners.slice(-1).map((row) => row.sandbox_id),
  );
  for (const { name, uid, epoch } of late) {
    assert.equal((await runtime.observe({ name, uid }, signal)).state, "held");
    await runtime.stop({ name, uid }, epoch, signal);
    await runtime.remove({ name, uid }, signal);
    await arena.world.assertNoneRun([uid]);
  }
}

describe("E5 E6 E7: SIGSTOP past the lease, then resumed", { concurrency: lanes }, () => {
  const free: Promise<Arena>[] = [];
  const hooks: (() => void | Promise<void>)[] = [];
  after(async () => {
    for (const hook of hooks) await hook();
    console.log(`${zombies.length} zombies`);
  });

  for (const zombie of zombies) {
    const says =
      zombie.refused === null ? "asks for nothing more" : `is refused ${zombie.refused.join(": ")}`;
    test(`at "${zombie.at}", ${zombie.resumed}: it ${says}`, async () => {
      const arena = await (free.pop() ?? openArena({ after: (hook) => void hooks.push(hook) }, { leaseMs }));
      await suspendAndResume(arena, zombie);
      free.push(Promise.resolve(arena));
    });
  }
});
