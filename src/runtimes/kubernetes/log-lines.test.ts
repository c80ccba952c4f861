import assert from "node:assert/strict";
import { test } from "node:test";
import { LogCutter, type LogLine, pieceBytesMax } from "./log-lines.ts";

const stamp = "2026-11-29T16:02:02.211653450Z";
const nanoseconds = BigInt(Date.parse("2026-11-29T16:02:02Z")) * 1_000_000n + 211_653_450n;

/** Cut a body that arrives in parts of this size. */
function cut(body: Buffer, size: number): readonly LogLine[] {
  const cutter = new LogCutter();
  const lines: LogLine[] = [];
  for (let from = 0; from < body.length; from += size)
    lines.push(...cutter.push(body.subarray(from, from + size)));
  return [...lines, ...cutter.end()];
}

const words = (lines: readonly LogLine[]) =>
  lines.map((line) => ("words" in line ? `! ${line.words}` : Buffer.from(line.bytes).toString("latin1")));

test("E19: however a log is cut on its way, its lines are the same, byte for byte", () => {
  const body = Buffer.from(`${stamp} a\0\xff\x1b[1m\n${stamp} \n${stamp} last`, "latin1");
  for (const size of [1, 2, 7, 31, 32, 33, 1000]) {
    assert.deepEqual(words(cut(body, size)), ["a\0\xff\x1b[1m\n", "\n", "last"]);
  }
});

test("E19: times keep their nanoseconds, with a zone and with fewer digits too", () => {
  const times = (text: string) => cut(Buffer.from(text), 1000).map((line) => ("at" in line ? line.at : null));
  assert.deepEqual(times(`${stamp} a\n${stamp} b\n`), [nanoseconds, nanoseconds]);
  assert.deepEqual(times("2026-11-29T18:02:02.21165345+02:00 a\n"), [nanoseconds]);
  assert.deepEqual(times("2026-11-29T16:02:02Z a\n"), [nanoseconds - 211_653_450n]);
});

test("E19: a long line comes in pieces, cut at the same places each time", () => {
  const body = Buffer.from(`${stamp} ${"x".repeat(150_000)}\n${stamp} y\n`);
  const lengths = (size: number) => cut(body, size).map((line) => ("bytes" in line ? line.bytes.length : 0));
  const expected = [pieceBytesMax, pieceBytesMax, 150_001 - 2 * pieceBytesMax, 2];
  assert.deepEqual(lengths(1000), expected);
  assert.deepEqual(lengths(1_000_000), expected);
});

test("E19: a line without a time is the server's word that the log is gone", () => {
  const gone = "unable to retrieve container logs for containerd://1";
  assert.deepEqual(words(cut(Buffer.from(gone), 7)), [`! ${gone}`]);
});
