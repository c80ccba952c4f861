import assert from "node:assert/strict";
import { test } from "node:test";
import { attentionOf } from "./health.ts";
import { instant } from "./time.ts";

const well = { snapshots: [], tables: [], neglected: [], processes: 1 };
const checks = (health: Parameters<typeof attentionOf>[0]) => attentionOf(health).map(({ check }) => check);

test("a snapshot is old after five minutes, or a million transactions", () => {
  const snapshot = { holder: "process 1", ageUs: 1_000_000n, snapshotAge: 3 };
  assert.deepEqual(checks({ ...well, snapshots: [snapshot] }), []);
  assert.deepEqual(checks({ ...well, snapshots: [{ ...snapshot, ageUs: 300_000_001n }] }), ["oldSnapshot"]);
  const hidden = { ...snapshot, ageUs: null, snapshotAge: 1_000_001 };
  assert.deepEqual(checks({ ...well, snapshots: [hidden] }), ["oldSnapshot"]);
});

test("dead rows matter when there are many, and more than twice the live ones", () => {
  const table = { name: "leases_work", live: 10n, dead: 50_000n, bytes: 0n, vacuumedAt: null };
  assert.deepEqual(checks({ ...well, tables: [table] }), []);
  assert.deepEqual(checks({ ...well, tables: [{ ...table, dead: 50_001n }] }), ["deadRows"]);
  assert.deepEqual(checks({ ...well, tables: [{ ...table, dead: 50_001n, live: 25_001n }] }), []);
});

test("what nobody takes is named; with no process alive that is what to do", () => {
  const neglected = [{ line: "execution/process", count: 3n, since: instant(0n) }];
  const [some] = attentionOf({ ...well, neglected });
  assert.match(some?.next ?? "", /Start a controller/);
  const [none] = attentionOf({ ...well, neglected, processes: 0 });
  assert.match(none?.next ?? "", /No process is alive/);
});
