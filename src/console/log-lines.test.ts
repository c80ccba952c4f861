import assert from "node:assert/strict";
import { test } from "node:test";
import type { LogLine } from "../client/client.ts";
import { LogLines, linesMax, marked } from "./log-lines.ts";

const line = (text: string, cursor = text): LogLine => ({
  cursor,
  attempt: 1,
  phase: "build",
  stream: "stdout",
  at: "2026-11-29T12:00:00.000000Z",
  text,
});

test("a search finds what is shown, across colours and whatever the case", () => {
  const lines = new LogLines();
  lines.add([line("one \u001b[31mERR\u001b[0mor"), line("two"), line("three error, error")]);
  const found = lines.find("error");
  assert.deepEqual(
    found.map(({ number }) => number),
    [1, 3],
  );
  const [first, last] = found;
  assert.ok(first !== undefined && last !== undefined);
  const parts = (one: typeof first) =>
    marked(one, "error").map(({ text, found }) => (found ? `[${text}]` : text));
  assert.deepEqual(parts(first), ["one ", "[ERR]", "[or]"]);
  assert.deepEqual(parts(last), ["three ", "[error]", ", ", "[error]"]);
});

test("what is kept is bounded, and what was dropped is counted", () => {
  const lines = new LogLines();
  const batch = Array.from({ length: 10_000 }, (_, index) => line(String(index)));
  for (let round = 0; round < 12; round += 1) lines.add(batch);
  assert.ok(lines.length <= linesMax * 1.1);
  assert.equal(lines.total, 120_000);
  assert.equal(lines.dropped, lines.total - lines.length);
  assert.equal(lines.find("")[0]?.number, lines.dropped + 1);
});
