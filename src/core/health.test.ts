import assert from "node:assert/strict";
import { test } from "node:test";
import { attentionOf } from "./health.ts";

const well = { snapshots: [], tables: [] };
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
