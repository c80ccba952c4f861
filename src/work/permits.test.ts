import assert from "node:assert/strict";
import { test } from "node:test";
import { Permits } from "./permits.ts";

test("W5: a permit that was used and is left to its lease stays known until it is recovered, and the oldest of very many go", () => {
  const permits = new Permits();
  for (const epoch of [1n, 2n, 3n]) permits.add(epoch);
  permits.leave(1n);
  permits.leave(2n);
  assert.deepEqual([...permits], [1n, 2n, 3n]);
  permits.delete(2n);
  assert.deepEqual([...permits], [1n, 3n]);
  for (let epoch = 10n; epoch < 10_009n; epoch += 1n) {
    permits.add(epoch);
    permits.leave(epoch);
  }
  assert.deepEqual([permits.has(1n), permits.size], [true, 10_001]);
  permits.add(10_009n);
  permits.leave(10_009n);
  assert.deepEqual([permits.has(1n), permits.has(3n), permits.has(10n)], [false, true, true]);
});
