import assert from "node:assert/strict";
import { test } from "node:test";
import { leftover } from "./previous.ts";

const pidFile = (pid: string) =>
  `${pid}\n/data\n1795973329\n5432\n/socket\n\n  9986355         9\nready   \n`;

test("a data directory without postmaster.pid and without processes has no leftover", () => {
  assert.deepEqual(leftover(null, []), { kind: "none" });
});

test("an empty or unreadable postmaster.pid is told from one that names a pid", () => {
  assert.deepEqual(leftover("", []), { kind: "unreadable" });
  assert.deepEqual(leftover("?\n", []), { kind: "unreadable" });
  assert.deepEqual(leftover(pidFile("0"), []), { kind: "unreadable" });
  assert.deepEqual(leftover(pidFile("4711"), []), { kind: "stale", pid: 4711 });
});

test("a server is running only when a process of this data directory says so", () => {
  assert.deepEqual(leftover(pidFile("4711"), [4710, 4711]), { kind: "running", pid: 4711 });
  assert.deepEqual(leftover(null, [4710]), { kind: "running", pid: 4710 });
  assert.deepEqual(leftover("", [4710]), { kind: "running", pid: 4710 });
});

test("backends that outlived their server are waited for, whoever has its pid now", () => {
  assert.deepEqual(leftover(pidFile("4711"), [5000]), { kind: "running", pid: 5000 });
});
