import assert from "node:assert/strict";
import { test } from "node:test";
import { openPodArena, type PodArena } from "../support/pod-arena.ts";
import {
  afterItsCancellation,
  afterItsEnd,
  suspendedAtEachMoment,
  whileItRuns,
  type Zombie,
  zombies,
} from "../support/zombies.ts";

const requests: readonly Zombie[] = [
  // The other has made it: the name is taken.
  { at: "api create received", ...whileItRuns, answered: 409, refused: null },
  // The name is free again: it is made, held, and nobody's.
  { at: "api create received", ...afterItsCancellation, answered: 201, refused: null },
  // The other has raised its epoch, which the patch tests.
  { at: "api release received", ...whileItRuns, answered: 422, refused: null },
  { at: "api release received", ...afterItsCancellation, answered: 404, refused: null },
  // It had taken over, and a third one has since.
  {
    at: "api fence received",
    before: "returned runtime.prepare",
    ...whileItRuns,
    answered: 422,
    refused: null,
  },
  { at: "api stop received", ...afterItsEnd, cancelled: true, answered: 404, refused: null },
  { at: "api delete received", ...afterItsEnd, answered: 404, refused: null },
  { at: "api finalize received", ...afterItsEnd, answered: 404, refused: null },
];

const arenas: PodArena[] = [];

suspendedAtEachMoment(
  "E5 E6 E7 G5 E21 E22: a controller of pods, SIGSTOP past the lease, then resumed; what it sent is refused by the pod",
  [...zombies.filter(({ at }) => /^(call|returned) runtime/.test(at)), ...requests],
  async (scope, options) => {
    const arena = await openPodArena(scope, options);
    arenas.push(arena);
    return arena;
  },
);

test("E7 G5: whoever deletes or patches a pod names its UID", () => {
  const writes = arenas
    .flatMap(({ cluster }) => cluster.requests)
    .filter(({ method }) => method === "DELETE" || method === "PATCH");
  assert.ok(writes.length > 0);
  for (const { body } of writes) {
    const asked: unknown = JSON.parse(body);
    const named = Array.isArray(asked)
      ? asked.some((operation) => operation.op === "test" && operation.path === "/metadata/uid")
      : /"preconditions":\{"uid":"/.test(body);
    assert.ok(named, body);
  }
});
