import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { microseconds } from "../../core/time.ts";
import { type ControlRequest, decide, readControlRequest, readVerdict } from "./control.ts";
import { toJson } from "./fields.ts";
import type { StateRecord } from "./records.ts";

const held: StateRecord = { epoch: 5n, phase: "held", releasedBy: null };
const uid = "uid";
const limit = microseconds(1n);

test("E6: only the epoch that stands releases, once, and only what is held", () => {
  assert.equal(decide(held, { op: "release", uid, epoch: 5n, limit }).act, "start");
  for (const epoch of [4n, 6n]) {
    assert.equal(decide(held, { op: "release", uid, epoch, limit }).verdict.ok, false);
  }
  const { state } = decide(held, { op: "release", uid, epoch: 5n, limit });
  assert.equal(decide(state, { op: "release", uid, epoch: 5n, limit }).act, "nothing");
  const stopping = decide(held, { op: "stop", uid, epoch: 5n }).state;
  assert.partialDeepStrictEqual(decide(stopping, { op: "release", uid, epoch: 5n, limit }).verdict, {
    reason: "stopping",
  });
});

test("E6: whatever is asked in whatever order, the epoch only grows and one start is the most", () => {
  const epoch = fc.bigInt(0n, 8n);
  const request: fc.Arbitrary<Exclude<ControlRequest, { op: "watch" }>> = fc.oneof(
    epoch.map((epoch) => ({ op: "fence" as const, uid, epoch })),
    epoch.map((epoch) => ({ op: "stop" as const, uid, epoch })),
    epoch.map((epoch) => ({ op: "release" as const, uid, epoch, limit })),
  );
  fc.assert(
    fc.property(fc.array(request, { maxLength: 30 }), (requests) => {
      let state = held;
      let starts = 0;
      let ended = false;
      for (const asked of requests) {
        const decision = decide(state, asked);
        if (decision.act === "start") {
          starts += 1;
          assert.ok(!ended && asked.epoch === state.epoch);
        }
        ended ||= decision.act === "end";
        assert.ok(decision.state.epoch >= state.epoch);
        if (!decision.verdict.ok) assert.equal(decision.state, state);
        assert.equal(
          asked.epoch < state.epoch,
          !decision.verdict.ok && decision.verdict.reason === "superseded",
        );
        state = decision.state;
      }
      assert.ok(starts <= 1);
    }),
  );
});

test("G6: requests and answers survive the wire, and nonsense is an error", () => {
  const request: ControlRequest = { op: "release", uid, epoch: 2n ** 60n, limit };
  assert.deepEqual(readControlRequest(toJson(request)), request);
  assert.deepEqual(readVerdict('{"ok":true}'), { ok: true });
  assert.throws(() => readVerdict('{"fault":"disk full"}'), /disk full/);
  for (const line of ["", "[]", "{}", '{"op":"start","uid":"x"}', '{"op":"fence","uid":"x","epoch":1}']) {
    assert.throws(() => readControlRequest(line));
  }
});
