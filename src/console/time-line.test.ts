import assert from "node:assert/strict";
import { test } from "node:test";
import type { AttemptView } from "../client/client.ts";
import { timeLine } from "./time-line.ts";

const at = (seconds: number) => `2026-11-29T12:00:${String(seconds).padStart(2, "0")}.000000Z`;
const sandbox = (changes: Partial<AttemptView["sandboxes"][number]>) =>
  ({
    phase: "build",
    planned_at: at(0),
    held_at: at(1),
    released_at: at(2),
    stopping_at: null,
    stopped_at: at(10),
    ...changes,
  }) as AttemptView["sandboxes"][number];
const attempt = (changes: Partial<AttemptView>) =>
  ({
    started_at: at(0),
    deadline: "2026-11-29T12:30:00.000000Z",
    finished_at: at(10),
    sandboxes: [sandbox({})],
    ...changes,
  }) as AttemptView;

test("a sandbox is planned, held and released, one after the other, until it has stopped", () => {
  const line = timeLine(attempt({}), 0);
  assert.equal(line.spanMs, 10_000);
  assert.deepEqual(
    line
      .linesOf("build")[0]
      ?.stretches.map(({ state, left, width }) => [state, left, Number(width.toFixed(3))]),
    [
      ["planned", 0, 0.1],
      ["held", 0.1, 0.1],
      ["released", 0.2, 0.8],
    ],
  );
  assert.deepEqual([line.deadline, line.now], [null, null]);
});

test("what still runs reaches until now, and a deadline that is near is on the line", () => {
  const running = attempt({
    finished_at: null,
    deadline: at(15),
    sandboxes: [sandbox({ stopped_at: null })],
  });
  const line = timeLine(running, Date.parse(at(10)));
  assert.equal(line.spanMs, 15_000);
  assert.equal(line.deadline, 1);
  assert.ok(line.now !== null && Math.abs(line.now - 2 / 3) < 1e-9);
  assert.equal(line.linesOf("build")[0]?.stretches.at(-1)?.until, null);
});
