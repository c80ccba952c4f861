import assert from "node:assert/strict";
import { test } from "node:test";
import { selectCarriers } from "./carriers.ts";
import { type ProcessEntry, parsePs, parseStat, readProcess, readProcesses } from "./process-table.ts";

const stat = (name: string, state: string) =>
  `42 (${name}) ${state} 7 42 40 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 1 2 3`;

test("E8: a process is read from /proc whatever its name is, and a zombie is none", () => {
  const expected = { pid: 42, parent: 7, group: 42, session: 40, startTime: "987654" };
  assert.deepEqual(parseStat(stat("sh", "S")), expected);
  assert.deepEqual(parseStat(stat("a) R 1 (b", "S")), expected);
  assert.equal(parseStat(stat("sh", "Z")), null);
  assert.equal(parseStat(""), null);
});

test("E8: without /proc processes are read from ps", () => {
  const output = [
    "    1     0     1 Ss   Sat Nov  1 10:00:00 2026 /sbin/launchd",
    "  900   850   900 S+   Sat Nov 28 17:20:33 2026 sleep 10 A=1 HOLDFAST_SANDBOX=u1 B=2",
    "  901   900   900 Z    Sat Nov 28 17:20:34 2026 (sleep)",
    "",
  ].join("\n");
  const found = parsePs(output);
  assert.deepEqual(found[1], {
    pid: 900,
    parent: 850,
    group: 900,
    session: 900,
    startTime: "Sat Nov 28 17:20:33 2026",
    marks: ["HOLDFAST_SANDBOX=u1"],
  });
  assert.equal(found.length, 2);
});

test("E8: this process finds itself", async () => {
  const self = await readProcess(process.pid);
  assert.ok(self !== null);
  const listed = (await readProcesses()).find((entry) => entry.pid === process.pid);
  assert.equal(listed?.startTime, self.startTime);
});

test("E8: what belongs is found by marker, session, group or parent, and nothing else is", () => {
  const entry = (pid: number, parent: number, session: number, ...marks: string[]): ProcessEntry => {
    return { pid, parent, group: session, session, startTime: "1", marks };
  };
  const table = [
    entry(1, 0, 1),
    entry(10, 1, 10),
    entry(20, 10, 20),
    entry(21, 20, 20),
    entry(30, 1, 30, "M=u"),
    entry(31, 30, 31),
    entry(32, 31, 32),
    entry(40, 1, 40, "M=other"),
  ];
  const pids = (session: number | null, except: number) =>
    selectCarriers(table, { marks: ["M=u"], session, except }).map(({ pid }) => pid);
  assert.deepEqual(pids(20, 10), [20, 21, 30, 31, 32]);
  assert.deepEqual(pids(null, 10), [30, 31, 32]);
  assert.deepEqual(pids(null, 30), []);
});
