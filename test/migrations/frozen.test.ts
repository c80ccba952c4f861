import assert from "node:assert/strict";
import { test } from "node:test";
import { readFrozen, thawed } from "../../src/core/schema/frozen.ts";
import { readMigrations } from "../../src/core/schema/migrations.ts";

const directory = new URL("../../migrations", import.meta.url).pathname;

test("M1: from the first tagged release on the bytes of a migration never change", async (t) => {
  const frozen = await readFrozen(directory);
  // The release turns this on by committing what scripts/freeze-migrations.ts writes.
  if (frozen === null)
    return t.diagnostic("no release is tagged: migrations/checksums.json is not there yet");
  assert.deepEqual(thawed(frozen, await readMigrations(directory)), []);
});

test("M1: an edited, renamed or removed migration is seen", () => {
  const frozen = { "0001_one": "a", "0002_two": "b" };
  const one = { version: 1, name: "one", checksum: "a" };
  assert.deepEqual(thawed(frozen, [one, { version: 2, name: "two", checksum: "b" }]), []);
  assert.deepEqual(thawed(frozen, [one, { version: 2, name: "two", checksum: "c" }]), ["0002_two"]);
  assert.deepEqual(thawed(frozen, [one, { version: 2, name: "too", checksum: "b" }]), ["0002_two"]);
  assert.deepEqual(thawed(frozen, []), ["0001_one", "0002_two"]);
});
