import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { brandId, type JobId, type SandboxId, type TenantId, uuidv7 } from "../core/ids.ts";
import { instant } from "../core/time.ts";
import type { Sandbox, SandboxState } from "../sandboxes/sandbox.ts";
import { type AttemptSnapshot, attemptTransitions, decide, type Phase, type PhaseState } from "./attempt.ts";
import { planOf } from "./plan.ts";

const tenant = brandId<TenantId>("acme");
const attempt = uuidv7();
const plan = planOf(
  {
    sources: { engine: { repository: "r", ref: "main" } },
    phases: [
      { name: "source", kind: "source", command: ["a"] },
      { name: "compile", kind: "compile", command: ["b"] },
      { name: "publish", kind: "publish", command: ["c"] },
    ],
  },
  "process",
);

function phases(...states: PhaseState[]): Phase[] {
  return plan.phases.map(({ name, kind }, index) => ({
    number: index + 1,
    name,
    kind,
    state: states[index] ?? "pending",
    failure: states[index] === "failed" ? { code: "start_failed", message: "It did not start." } : null,
  }));
}

function sandbox(step: string, state: SandboxState, more: Partial<Sandbox> = {}): Sandbox {
  const ran = state !== "planned" && state !== "held";
  return {
    id: brandId<SandboxId>(uuidv7()),
    tenant,
    owner: { kind: "execution", id: attempt },
    step,
    ordinal: 1,
    name: `hf-${step}`,
    runtime: "process",
    state,
    uid: state === "planned" ? null : "u1",
    deadline: instant(1_000_000_000n),
    plannedAt: instant(1n),
    releasedAt: ran ? instant(2n) : null,
    stoppedAt: null,
    removedAt: null,
    stopReason: null,
    outcome: state === "stopped" ? "exited" : null,
    exitCode: state === "stopped" ? 0 : null,
    message: null,
    unprovenSince: null,
    log: { position: null, seq: 0n, bytes: 0n, truncated: false, settled: state === "stopped" },
    ...more,
  };
}

function view(more: Partial<AttemptSnapshot> = {}): AttemptSnapshot {
  return {
    now: instant(10n),
    seenAtMs: 0,
    tenant,
    job: brandId<JobId>(uuidv7()),
    ordinal: 1,
    attempt,
    state: "active",
    plan,
    deadline: instant(1_000_000_000n),
    cancelRequested: false,
    phases: phases(),
    sandboxes: [],
    pins: {},
    artifactDeclared: false,
    output: "moved",
    ...more,
  };
}

test("a new attempt begins its first phase", () => {
  const step = decide(view());
  assert.equal(step.do, "advance");
  assert.equal(step.do === "advance" && step.next?.phase.name, "source");
});

test("E19: after the end output is archived, then its chunks go, then the attempt is cleaned", () => {
  const next = (output: AttemptSnapshot["output"]) => decide(view({ state: "finished", output })).do;
  assert.deepEqual([next("stored"), next("archived"), next("moved")], ["archive", "trim", "clean"]);
});

test("E8: while a sandbox is not proven stopped, nothing else starts, whatever its state", () => {
  const expected = { planned: "hold", held: "release", released: "watch", stopping: "prove" } as const;
  for (const [state, step] of Object.entries(expected)) {
    const seen = decide(
      view({ phases: phases("running"), sandboxes: [sandbox("source", state as SandboxState)] }),
    );
    assert.equal(seen.do, step, state);
  }
});

test("E10: output is stored before the phase is settled", () => {
  const stopped = sandbox("source", "stopped");
  const undrained = { ...stopped, log: { ...stopped.log, settled: false } };
  assert.equal(decide(view({ phases: phases("running"), sandboxes: [undrained] })).do, "drain");
});

test("E9: the last source phase fails when a pin is missing, and goes on with it", () => {
  const ended = view({ phases: phases("running"), sandboxes: [sandbox("source", "stopped")] });
  const failed = decide(ended);
  assert.ok(
    failed.do === "advance" && failed.ended?.failure?.code === "pins_missing" && failed.next === null,
  );
  const pinned = decide({ ...ended, pins: { engine: "a".repeat(40) } });
  assert.ok(
    pinned.do === "advance" && pinned.ended?.state === "succeeded" && pinned.next?.phase.name === "compile",
  );
});

test("E20: a publish phase that declared no artifact has failed", () => {
  const ended = view({
    phases: phases("succeeded", "succeeded", "running"),
    sandboxes: ["source", "compile", "publish"].map((step) => sandbox(step, "stopped")),
    pins: { engine: "a".repeat(40) },
  });
  const step = decide(ended);
  assert.ok(step.do === "advance" && step.ended?.failure?.code === "artifact_missing");
});

test("E5: a cancelled or overdue attempt is stopped; what was never recorded outside is settled at once", () => {
  for (const stop of [{ cancelRequested: true }, { now: instant(1_000_000_000n) }]) {
    const running = { phases: phases("running"), ...stop };
    assert.equal(decide(view({ ...running, sandboxes: [sandbox("source", "planned")] })).do, "abandon");
    assert.equal(decide(view({ ...running, sandboxes: [sandbox("source", "held")] })).do, "stop");
    assert.equal(decide(view({ ...running, sandboxes: [sandbox("source", "released")] })).do, "stop");
    assert.equal(decide(view({ ...running, sandboxes: [sandbox("source", "stopping")] })).do, "prove");
  }
});

test("a sandbox that ended before it started is made again, three times at most", () => {
  const dead = (ordinal: number) =>
    sandbox("source", "stopped", { ordinal, releasedAt: null, outcome: "never_started" });
  const again = decide(view({ phases: phases("running"), sandboxes: [dead(1)] }));
  assert.ok(again.do === "advance" && again.ended === null && again.next?.ordinal === 2);
  const failed = decide(view({ phases: phases("running"), sandboxes: [dead(1), dead(2), dead(3)] }));
  assert.ok(failed.do === "advance" && failed.ended?.failure?.code === "start_failed");
});

test("E4: a sandbox is asked to stop its grace before the deadline, and none is begun that late", () => {
  const grace = 10_500_000n; // and half a second for the kill
  const at = (left: bigint) => instant(1_000_000_000n - grace - left);
  const running = { phases: phases("running"), sandboxes: [sandbox("source", "released")] };
  assert.equal(decide(view({ ...running, now: at(1n) })).do, "watch");
  const late = decide(view({ ...running, now: at(0n) }));
  assert.ok(late.do === "stop" && late.reason === "deadline");
  const between = { phases: phases("succeeded"), sandboxes: [sandbox("source", "stopped")] };
  assert.equal(decide(view({ ...between, now: at(1n) })).do, "advance");
  const step = decide(view({ ...between, now: at(0n) }));
  assert.ok(step.do === "finish" && step.failure?.code === "deadline_exceeded");
});

test("E4: a phase that had no time to begin has missed the deadline, and so has its attempt", () => {
  const lastCall = instant(1_000_000_000n - 10_500_000n);
  const abandoned = sandbox("source", "stopped", { releasedAt: null, outcome: "never_started" });
  const settled = decide(view({ now: lastCall, phases: phases("running"), sandboxes: [abandoned] }));
  assert.ok(settled.do === "advance" && settled.next === null && settled.ended !== null);
  assert.equal(settled.ended.failure?.code, "deadline_exceeded");
  // The attempt fails with what its phase failed with, also when the deadline itself is still to come.
  const failed = { ...settled.ended.phase, state: "failed" as const, failure: settled.ended.failure };
  const step = decide(
    view({ now: lastCall, phases: [failed, ...phases().slice(1)], sandboxes: [abandoned] }),
  );
  assert.deepEqual(step, { do: "finish", outcome: "failed", failure: settled.ended.failure });
});

test("E4: an attempt that missed its deadline says what its last sandbox says", () => {
  const waited = sandbox("source", "stopped", { outcome: "deadline", message: "No node could take it." });
  const late = { now: instant(1_000_000_000n), sandboxes: [waited] };
  const settled = decide(view({ ...late, phases: phases("running") }));
  assert.ok(settled.do === "advance" && settled.ended !== null);
  assert.match(settled.ended.failure?.message ?? "", /deadline.* Phase source: No node could take it\./);
  const failed = { ...settled.ended.phase, state: "failed" as const, failure: settled.ended.failure };
  const step = decide(view({ ...late, phases: [failed, ...phases().slice(1)] }));
  assert.deepEqual(step, { do: "finish", outcome: "failed", failure: settled.ended.failure });
});

test("the deadline of an attempt is its failure, also between phases", () => {
  const late = view({
    now: instant(1_000_000_000n),
    phases: phases("succeeded"),
    sandboxes: [sandbox("source", "stopped")],
  });
  const step = decide(late);
  assert.ok(step.do === "finish" && step.outcome === "failed" && step.failure?.code === "deadline_exceeded");
});

test("a finished attempt is cleaned, and a cleaned one is left alone", () => {
  assert.equal(decide(view({ state: "finished" })).do, "clean");
  assert.equal(decide(view({ state: "cleaned" })).do, "nothing");
  assert.equal(attemptTransitions.cleaned.finish, null);
});

test("decide is total: every snapshot has a step, and never a start beside something alive (E8)", () => {
  const sandboxStates = fc.constantFrom<SandboxState>(
    "planned",
    "held",
    "released",
    "stopping",
    "stopped",
    "removed",
  );
  const outcomes = fc.constantFrom(
    "exited",
    "signaled",
    "deadline",
    "stopped",
    "never_started",
    "lost",
    null,
  );
  const snapshot = fc.record({
    states: fc.array(fc.constantFrom<PhaseState>("pending", "running", "succeeded", "failed"), {
      minLength: 3,
      maxLength: 3,
    }),
    sandboxes: fc.array(
      fc.tuple(fc.constantFrom("source", "compile", "publish"), sandboxStates, outcomes, fc.boolean()),
      { maxLength: 5 },
    ),
    cancelRequested: fc.boolean(),
    late: fc.boolean(),
    pinned: fc.boolean(),
    artifactDeclared: fc.boolean(),
  });
  fc.assert(
    fc.property(snapshot, (drawn) => {
      const sandboxes = drawn.sandboxes.map(([step, state, outcome, settled]) => {
        const made = sandbox(step, state, { outcome });
        return { ...made, log: { ...made.log, settled } };
      });
      const step = decide(
        view({
          phases: phases(...drawn.states),
          sandboxes,
          cancelRequested: drawn.cancelRequested,
          now: instant(drawn.late ? 2_000_000_000n : 10n),
          pins: drawn.pinned ? { engine: "a".repeat(40) } : {},
          artifactDeclared: drawn.artifactDeclared,
        }),
      );
      const alive = sandboxes.some(({ state }) => state !== "stopped" && state !== "removed");
      if (alive) assert.ok(step.do !== "advance" && step.do !== "finish" && step.do !== "drain", step.do);
      if (step.do === "release" || step.do === "hold") assert.ok(!drawn.cancelRequested && !drawn.late);
      if (step.do === "advance" && step.next !== null) assert.ok(!drawn.cancelRequested && !drawn.late);
      if (step.do === "finish" && step.outcome === "cancelled") assert.ok(drawn.cancelRequested);
    }),
    { numRuns: 2000 },
  );
});
