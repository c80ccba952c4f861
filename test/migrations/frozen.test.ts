import assert from "node:assert/strict";
import { test } from "node:test";
import { checksumsOf, readFrozen, thawed } from "../../src/core/schema/frozen.ts";
import { readMigrations } from "../../src/core/schema/migrations.ts";
import { readOnlineSteps } from "../../src/core/schema/online.ts";

const directory = new URL("../../migrations", import.meta.url).pathname;

test("M1: from the first tagged release on the bytes of a migration or online step never change", async (t) => {
  const frozen = await readFrozen(directory);
  // The release turns this on by committing what scripts/freeze-migrations.ts writes.
  if (frozen === null)
    return t.diagnostic("no release is tagged: migrations/checksums.json is not there yet");
  assert.deepEqual(
    thawed(frozen, checksumsOf(await readMigrations(directory), await readOnlineSteps(directory))),
    [],
  );
});

test("M1: an edited, renamed or removed migration or online step is seen", () => {
  const frozen = { "0001_one": "a", "0002_two": "b", "online/0002_step": "c" };
  const one = { version: 1, name: "one", checksum: "a" };
  const two = { version: 2, name: "two", checksum: "b" };
  const step = { name: "0002_step", checksum: "c" };
  assert.deepEqual(thawed(frozen, checksumsOf([one, two], [step])), []);
  assert.deepEqual(thawed(frozen, checksumsOf([one, { ...two, checksum: "c" }], [step])), ["0002_two"]);
  assert.deepEqual(thawed(frozen, checksumsOf([one, { ...two, name: "too" }], [step])), ["0002_two"]);
  assert.deepEqual(thawed(frozen, checksumsOf([one, two], [{ ...step, checksum: "d" }])), [
    "online/0002_step",
  ]);
  assert.deepEqual(thawed(frozen, checksumsOf([], [])), Object.keys(frozen));
});
