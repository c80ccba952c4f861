import assert from "node:assert/strict";
import { test } from "node:test";
import { isHoldfastError } from "../core/errors.ts";
import type { JobState, JobSubmission } from "../wire/job.ts";
import {
  checkSizes,
  decideCancellation,
  type JobEvent,
  jobTransitions,
  nextJobState,
  patchIntent,
} from "./job.ts";

const states = Object.keys(jobTransitions) as JobState[];
const events: readonly JobEvent[] = ["start", "requeue", "succeed", "fail", "cancel"];

test("E12, G8: the edges of a job's states are these and no others", () => {
  const edges = states.flatMap((state) =>
    events.flatMap((event) => {
      const next = jobTransitions[state][event];
      return next === null ? [] : [`${state}>${next}`];
    }),
  );
  assert.deepEqual(edges, [
    "queued>running",
    "queued>failed",
    "queued>cancelled",
    "running>queued",
    "running>succeeded",
    "running>failed",
    "running>cancelled",
  ]);
});

test("what has no edge is a conflict", () => {
  for (const state of states) {
    for (const event of events) {
      if (jobTransitions[state][event] !== null) continue;
      assert.throws(
        () => nextJobState(state, event),
        (error) => isHoldfastError(error, "conflict"),
      );
    }
  }
});

test("G8: cancellation is monotonic", () => {
  const decide = (state: JobState, cancelRequested: boolean) =>
    decideCancellation({ state, cancelRequested });
  assert.deepEqual(
    states.map((state) => [decide(state, false), decide(state, true)]),
    [
      ["cancel_now", "cancel_now"],
      ["request", "nothing"],
      ["refuse", "refuse"],
      ["refuse", "refuse"],
      ["nothing", "nothing"],
    ],
  );
});

const present = { labels: { a: "1", b: "2" }, priority: 2 };

test("a patch merges labels, and a null removes one", () => {
  assert.deepEqual(patchIntent("running", present, { labels: { b: null, c: "3", d: null } }), {
    labels: { a: "1", c: "3" },
    priority: 2,
  });
});

test("a patch that changes nothing is nothing, in any state", () => {
  for (const state of states) {
    assert.equal(patchIntent(state, present, { labels: { a: "1", z: null }, priority: 2 }), null);
  }
});

test("priority counts only while a job waits", () => {
  assert.deepEqual(patchIntent("queued", present, { priority: 0 }), { ...present, priority: 0 });
  assert.throws(
    () => patchIntent("running", present, { priority: 0 }),
    (error) => isHoldfastError(error, "conflict"),
  );
});

const job = (labels: Record<string, string>, env: Record<string, string> = {}): JobSubmission => ({
  apiVersion: "holdfast/v1",
  kind: "Job",
  metadata: { name: "a", labels },
  spec: { phases: [{ name: "a", kind: "compile", command: ["true"], env }] },
});

test("what is stored is bounded in bytes, also after a merge", () => {
  const labels = Object.fromEntries(Array.from({ length: 40 }, (_, n) => [`n${n}`, "é".repeat(150)]));
  const refused = (pointer: string) => (error: unknown) =>
    isHoldfastError(error, "invalid_request") && error.fields[0]?.pointer === pointer;
  assert.throws(() => checkSizes(job(labels)), refused("/metadata/labels"));
  assert.throws(() => patchIntent("queued", present, { labels }), refused("/labels"));
  assert.throws(() => checkSizes(job({}, { A: "x".repeat(200_000) })), refused("/spec"));
  checkSizes(job({ a: "1" }, { A: "x" }));
});
