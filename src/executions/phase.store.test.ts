import assert from "node:assert/strict";
import { after, test } from "node:test";
import { openAttempts, outcomeOf } from "../../test/support/attempts.ts";
import { isHoldfastError } from "../core/errors.ts";
import type { ErrorCode } from "../wire/errors.ts";
import type { AttemptSnapshot } from "./attempt.ts";
import {
  advancePhase,
  appendProgress,
  readSandboxLog,
  recordLogEnd,
  recordRelease,
  recordRemoved,
  recordResource,
  recordStopped,
  recordStopping,
  recordUnproven,
} from "./phase.store.ts";

const bench = await openAttempts({ after }, { slots: 40 });
const { db } = bench;

async function refusedWithoutChange(code: ErrorCode | RegExp, what: () => Promise<unknown>): Promise<void> {
  const before = await bench.digest();
  await assert.rejects(what(), (error) =>
    code instanceof RegExp ? code.test(String(error)) : isHoldfastError(error, code),
  );
  assert.equal(await bench.digest(), before, "something was changed");
}

/** By the phase that can't be over yet, or by the one living sandbox. */
const stillAlive = /can't be succeeded|sandbox_attempts_one_alive/;

async function unchanged(what: () => Promise<unknown>): Promise<void> {
  const before = await bench.digest();
  await what();
  assert.equal(await bench.digest(), before, "something was changed");
}

function theSandbox(view: AttemptSnapshot) {
  const sandbox = view.sandboxes.at(-1);
  assert.ok(sandbox);
  return sandbox;
}

test("E7: the UID that was recorded first stands; recording it again changes nothing", async () => {
  const { lease } = await bench.begin();
  const sandbox = theSandbox(await bench.driveTo(lease, "hold"));
  await recordResource(db, lease, sandbox, "first");
  await unchanged(() => recordResource(db, lease, sandbox, "first"));
  await refusedWithoutChange("uid_conflict", () => recordResource(db, lease, sandbox, "second"));
  await recordRelease(db, lease, sandbox);
  await refusedWithoutChange("uid_conflict", () => recordResource(db, lease, sandbox, "second"));
  await unchanged(() => recordResource(db, lease, sandbox, "first"));
});

test("E7: of two UIDs recorded at once one stands", async () => {
  const { lease } = await bench.begin();
  const sandbox = theSandbox(await bench.driveTo(lease, "hold"));
  const outcomes = await Promise.allSettled([
    recordResource(db, lease, sandbox, "one"),
    recordResource(db, lease, sandbox, "two"),
  ]);
  assert.deepEqual(outcomes.map(({ status }) => status).toSorted(), ["fulfilled", "rejected"]);
  const winner = outcomes[0]?.status === "fulfilled" ? "one" : "two";
  assert.equal(theSandbox(await bench.look(lease)).uid, winner);
});

test("E8: the next phase is not begun while a sandbox of the attempt is not proven stopped", async () => {
  const { lease } = await bench.begin({ kinds: ["compile", "compile"] });
  await bench.driveTo(lease, "hold");
  const begin = async () => {
    const view = await bench.look(lease);
    const [first, second] = view.phases;
    const planned = view.plan.phases[1];
    assert.ok(first && second && planned);
    await advancePhase(
      db,
      lease,
      view,
      {
        ended: { phase: first, state: "succeeded", failure: null },
        next: { phase: second, planned, ordinal: 1 },
      },
      "test",
    );
  };
  for (const state of ["planned", "held", "released", "stopping"]) {
    const sandbox = theSandbox(await bench.look(lease));
    assert.equal(sandbox.state, state);
    await refusedWithoutChange(stillAlive, begin);
    // What the world can't be asked about is not stopped either.
    if (sandbox.uid !== null) {
      await recordUnproven(db, lease, sandbox, "the node is gone");
      await refusedWithoutChange(stillAlive, begin);
    }
    if (state === "released") await recordStopping(db, lease, sandbox, "cancelled");
    // It came to a good end by itself before it was asked to stop.
    else if (state === "stopping") await recordStopped(db, lease, sandbox, outcomeOf("exited"), "shown");
    else await bench.step(lease);
  }
  await begin();
  assert.deepEqual(
    (await bench.look(lease)).phases.map(({ state }) => state),
    ["succeeded", "running"],
  );
});

test("each move is made once: again, or from a state that it does not start from, it changes nothing", async () => {
  const { lease } = await bench.begin();
  const planned = theSandbox(await bench.driveTo(lease, "hold"));
  await unchanged(() => recordRelease(db, lease, planned));
  await unchanged(() => recordStopping(db, lease, planned, "cancelled"));
  await unchanged(() => recordRemoved(db, lease, planned));
  await unchanged(() => recordUnproven(db, lease, planned, "reason"));
  const sandbox = theSandbox(await bench.released(lease));
  await unchanged(() => recordRelease(db, lease, sandbox));
  await recordUnproven(db, lease, sandbox, "reason");
  const { unprovenSince } = theSandbox(await bench.look(lease));
  assert.ok(unprovenSince);
  await unchanged(() => recordUnproven(db, lease, sandbox, "reason"));
  await recordUnproven(db, lease, sandbox, "another reason");
  assert.equal(theSandbox(await bench.look(lease)).unprovenSince, unprovenSince);
  await recordStopped(db, lease, sandbox, outcomeOf("exited"), "proof");
  assert.equal(theSandbox(await bench.look(lease)).unprovenSince, null);
  await unchanged(() => recordStopped(db, lease, sandbox, { ...outcomeOf("stopped"), exitCode: 9 }, "other"));
  await unchanged(() => recordStopping(db, lease, sandbox, "cancelled"));
  await recordLogEnd(db, lease, sandbox.id, null);
  await unchanged(() => recordLogEnd(db, lease, sandbox.id, null));
  await unchanged(() => recordLogEnd(db, lease, sandbox.id, "lost"));
});

test("E15: a replayed chunk, and one of somebody who was elsewhere, change nothing", async () => {
  const { lease } = await bench.begin();
  const view = await bench.released(lease);
  const sandbox = theSandbox(view);
  const chunk = (text: string) => ({ stream: "stdout", at: view.now, text }) as const;
  const append = (afterSeq: bigint, ...texts: string[]) =>
    appendProgress(db, lease, sandbox.id, {
      afterSeq,
      position: `p${afterSeq}`,
      chunks: texts.map(chunk),
      truncated: false,
    });
  assert.equal(await append(0n, "one\n", "two\n"), true);
  await unchanged(async () => assert.equal(await append(0n, "one\n", "two\n"), false));
  await unchanged(async () => assert.equal(await append(1n, "two\n"), false));
  await unchanged(async () => assert.equal(await append(5n, "later\n"), false));
  const both = await Promise.all([append(2n, "three\n"), append(2n, "three\n")]);
  assert.equal(both.filter(Boolean).length, 1);
  const rows = await bench.kernel.ask(
    "select seq, body from holdfast.log_chunks where sandbox_id = $1 order by seq",
    [sandbox.id],
  );
  assert.deepEqual(
    rows.map((row) => Object.values(row).join(" ")),
    ["1 one\n", "2 two\n", "3 three\n"],
  );
  const { seq, bytes, position } = await readSandboxLog(db, lease, sandbox.id);
  assert.deepEqual([seq, bytes, position], [3n, 14n, "p2"]);
  await recordStopped(db, lease, sandbox, outcomeOf("exited"), "proof");
  await recordLogEnd(db, lease, sandbox.id, null);
  await unchanged(async () => assert.equal(await append(3n, "after the end\n"), false));
});

test("what a runtime says in too many words is cut, and nothing else", async () => {
  const { lease } = await bench.begin();
  const sandbox = theSandbox(await bench.released(lease));
  const long = "ä".repeat(5000);
  await recordUnproven(db, lease, sandbox, long);
  await recordStopped(db, lease, sandbox, { ...outcomeOf("exited"), message: long }, long);
  await recordLogEnd(db, lease, sandbox.id, long);
  assert.equal(theSandbox(await bench.look(lease)).message, long.slice(0, 1000));
});
