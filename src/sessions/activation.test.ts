import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { brandId, type SandboxId, type TenantId } from "../core/ids.ts";
import { instant, microseconds } from "../core/time.ts";
import type { Sandbox, SandboxState } from "../sandboxes/sandbox.ts";
import {
  type Activation,
  type ActivationState,
  activationTransitions,
  decide,
  decideCancellation,
  hasEnded,
  type SessionSnapshot,
} from "./activation.ts";
import type { SessionIntent } from "./session.ts";

const second = 1_000_000n;
const now = instant(1_000n * second);
const states = Object.keys(activationTransitions) as ActivationState[]; // its own keys

const sandbox = (state: SandboxState, more: Partial<Sandbox> = {}): Sandbox => {
  const over = state === "stopped" || state === "removed";
  const started = state !== "planned" && state !== "held";
  return {
    id: brandId<SandboxId>("s"),
    tenant: brandId<TenantId>("acme"),
    owner: { kind: "activation", id: "a" },
    step: "run-1",
    ordinal: 1,
    name: "hf-run-1",
    runtime: "process",
    state,
    uid: state === "planned" ? null : "u",
    deadline: instant(now + 600n * second),
    plannedAt: now,
    releasedAt: started ? now : null,
    stoppedAt: over ? now : null,
    removedAt: state === "removed" ? now : null,
    stopReason: null,
    outcome: over ? "exited" : null,
    exitCode: over ? 0 : null,
    message: null,
    unprovenSince: null,
    log: { position: null, seq: 1n, bytes: 1n, truncated: false, settled: over },
    ...more,
  };
};

const activation = (state: ActivationState, more: Partial<Activation> = {}): Activation => ({
  uid: "a",
  id: "a",
  state,
  cancelRequested: false,
  retryAt: null,
  tries: state === "queued" ? 0 : 1,
  failures: 0,
  triesMax: 3,
  grace: microseconds(second),
  destinations: [],
  sandboxes: [],
  output: { read: 1n, done: false, fault: null },
  proposal: null,
  ...more,
});

const session = (first: Activation | null, more: Partial<SessionSnapshot> = {}): SessionSnapshot => ({
  now,
  seenAtMs: 0,
  tenant: brandId<TenantId>("acme"),
  session: "s",
  desired: "active",
  generation: 1n,
  head: 0n,
  activation: first,
  ...more,
});

const proposed = { candidate: null, requiredAction: null } as const;
const over = { read: 1n, done: true, fault: null } as const;
const ranWell = { sandboxes: [sandbox("stopped")], output: over, proposal: proposed };
const does = (first: Activation | null, more: Partial<SessionSnapshot> = {}) =>
  decide(session(first, more)).do;

test("a turn goes from the line to its checkpoint, one step after the other", () => {
  assert.equal(does(activation("queued")), "start");
  assert.equal(does(activation("running", { sandboxes: [sandbox("planned")] })), "hold");
  assert.equal(does(activation("running", { sandboxes: [sandbox("held")] })), "release");
  const said = { read: 0n, done: false, fault: null };
  assert.equal(does(activation("running", { sandboxes: [sandbox("released")], output: said })), "read");
  assert.equal(does(activation("running", { sandboxes: [sandbox("released")] })), "watch");
  const undrained = sandbox("stopped", { log: { ...sandbox("stopped").log, settled: false } });
  assert.equal(does(activation("running", { sandboxes: [undrained] })), "drain");
  assert.equal(does(activation("running", { sandboxes: [sandbox("stopped")] })), "read");
  assert.equal(does(activation("running", ranWell)), "propose");
  const candidate = { sha256: "a", verified: false };
  assert.equal(does(activation("committing", { proposal: { ...proposed, candidate } })), "verify");
  const verified = { ...candidate, verified: true };
  assert.equal(does(activation("committing", { proposal: { ...proposed, candidate: verified } })), "commit");
  assert.equal(does(activation("committing", { proposal: proposed })), "commit");
});

test("what needs somebody waits, and the session rests with it", () => {
  const requiredAction = { type: "retry_activation", reason: "x" } as const;
  assert.equal(does(activation("committing", { proposal: { candidate: null, requiredAction } })), "wait");
  assert.deepEqual(decide(session(activation("waiting"))), { do: "rest", observed: "waiting", until: null });
});

test("G8: a cancelled one is stopped wherever it is, and never proposes, commits, retries or fails", () => {
  const stopping = fc.constantFrom<SandboxState>("planned", "held", "released", "stopping", "stopped");
  const sandboxes = stopping.map((state) => [sandbox(state)]);
  const cancelled = fc.record({
    state: fc.constantFrom<ActivationState>("queued", "running", "committing"),
    sandboxes,
    output: fc.constantFrom(over, { read: 0n, done: false, fault: null }),
    exited: fc.boolean(),
  });
  fc.assert(
    fc.property(cancelled, ({ state, ...more }) => {
      const own = state === "running" ? more.sandboxes : [];
      const step = decide(
        session(activation(state, { ...more, sandboxes: own, proposal: proposed, cancelRequested: true })),
      );
      assert.ok(["abandon", "stop", "prove", "drain", "cancel"].includes(step.do), step.do);
    }),
  );
});

test("nothing starts while a sandbox of the activation is not proven stopped, whatever its state", () => {
  for (const state of ["planned", "held", "released", "stopping"] as const) {
    const own = [sandbox("stopped", { step: "run-1" }), sandbox(state, { step: "run-2" })];
    const step = does(activation("running", { tries: 2, sandboxes: own, proposal: proposed, output: over }));
    assert.ok(["hold", "release", "watch", "prove"].includes(step), step);
  }
});

test("S13: a run that said what is no protocol is stopped at once, and fails for that however it ended", () => {
  const spoiled = { ...over, fault: { code: "not_json", message: "Line 2: x" } };
  for (const [state, step] of [
    ["planned", "abandon"],
    ["held", "stop"],
    ["released", "stop"],
    ["stopping", "prove"],
  ] as const) {
    assert.equal(does(activation("running", { sandboxes: [sandbox(state)], output: spoiled })), step);
  }
  const reason = decide(
    session(activation("running", { sandboxes: [sandbox("released")], output: spoiled })),
  );
  assert.equal(reason.do === "stop" ? reason.reason : null, "fault");
  for (const end of [
    { outcome: "stopped", exitCode: null, stopReason: "fault" },
    { outcome: "signaled", exitCode: null, stopReason: "fault" },
    { outcome: "exited", exitCode: 1 },
    { outcome: "exited", exitCode: 0 },
  ] as const) {
    const step = decide(
      session(activation("running", { sandboxes: [sandbox("stopped", end)], output: spoiled })),
    );
    assert.equal(step.do === "fail" ? step.failure.code : step.do, "not_json");
  }
});

test("a run that failed is tried again from the unchanged head after a pause, a bounded number of times", () => {
  const crashed = { ...ranWell, sandboxes: [sandbox("stopped", { exitCode: 1 })], proposal: null };
  const first = decide(session(activation("running", crashed)));
  assert.equal(first.do, "retry");
  const pauses = [0, 1].map((failures) => {
    const step = decide(session(activation("running", { ...crashed, failures })));
    return step.do === "retry" ? step.at - now : 0n;
  });
  assert.deepEqual(pauses, [second, 2n * second]);
  assert.equal(does(activation("running", { ...crashed, failures: 2 })), "fail");
  assert.equal(does(activation("running", { ...crashed, triesMax: 1 })), "fail");
  const waits = { retryAt: instant(now + second) };
  assert.deepEqual(decide(session(activation("queued", waits))), {
    do: "rest",
    observed: "running",
    until: waits.retryAt,
  });
});

test("what another run can't mend fails at once, and says why", () => {
  const code = (more: Partial<Activation>) => {
    const step = decide(session(activation("running", { ...ranWell, ...more })));
    return step.do === "fail" ? step.failure.code : step.do;
  };
  const stopped = (more: Partial<Sandbox>) => ({ sandboxes: [sandbox("stopped", more)] });
  const log = { ...sandbox("stopped").log, truncated: true };
  assert.equal(code(stopped({ outcome: "out_of_memory", exitCode: null })), "out_of_memory");
  assert.equal(code(stopped({ stopReason: "deadline", outcome: "stopped" })), "deadline_exceeded");
  assert.equal(code(stopped({ log })), "output_too_large");
  const fault = { code: "unknown_field", message: "x" };
  assert.equal(code({ output: { ...over, fault } }), "unknown_field");
  assert.equal(code({ output: { ...over, fault: { code: "no_outcome", message: "x" } } }), "retry");
  assert.equal(code(stopped({ outcome: "lost", exitCode: null })), "retry");
  assert.equal(code({ proposal: null }), "retry");
});

test("E4: a run is asked to stop its grace before its timeout, and one that never started is not begun that late", () => {
  const late = { now: instant(sandbox("released").deadline - second) };
  assert.equal(does(activation("running", { sandboxes: [sandbox("released")] }), late), "stop");
  assert.equal(does(activation("running", { sandboxes: [sandbox("planned")] }), late), "abandon");
  const never = sandbox("stopped", { releasedAt: null, outcome: "start_failed", exitCode: null });
  assert.equal(does(activation("running", { sandboxes: [never] }), late), "fail");
  assert.equal(does(activation("running", { sandboxes: [never] })), "plan");
  assert.equal(does(activation("running", { sandboxes: [never, never, never] })), "retry");
});

test("a suspended session begins nothing and lets what runs go on; what is wanted is what it rests as", () => {
  const at = (desired: SessionIntent, first: Activation | null) => decide(session(first, { desired }));
  assert.deepEqual(at("suspended", activation("queued")), { do: "rest", observed: "suspended", until: null });
  assert.equal(at("suspended", activation("running", { sandboxes: [sandbox("held")] })).do, "release");
  assert.equal(at("closed", activation("queued")).do, "start");
  const rests = (["active", "suspended", "closed", "deleted"] as const).map((desired) => {
    const step = at(desired, null);
    return step.do === "rest" ? step.observed : step.do;
  });
  assert.deepEqual(rests, ["idle", "suspended", "closed", "deleted"]);
});

test("G8: cancelling is decided for every state, and nothing leads out of an end", () => {
  const decisions = states.map((state) => [state, decideCancellation({ state, cancelRequested: false })]);
  assert.deepEqual(Object.fromEntries(decisions), {
    queued: "cancel_now",
    running: "request",
    committing: "request",
    waiting: "cancel_now",
    committed: "refuse",
    failed: "refuse",
    cancelled: "nothing",
  });
  for (const state of states.filter(hasEnded)) {
    assert.deepEqual(
      Object.values(activationTransitions[state]).filter((to) => to !== null),
      [],
    );
  }
});
