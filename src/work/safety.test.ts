import assert from "node:assert/strict";
import { test } from "node:test";
import { afterClosure, afterLoss, effectSafeties } from "./safety.ts";

const knowledge = ["unknown", "applied", "not_applied"] as const;

test("W11: what follows a lost worker is said for each safety and each knowledge, and nothing else", () => {
  assert.deepEqual(Object.keys(afterLoss), [...effectSafeties]);
  for (const table of [afterLoss, afterClosure]) {
    for (const safety of effectSafeties) assert.deepEqual(Object.keys(table[safety]), [...knowledge]);
  }
});

test("W11: what is applied succeeds, also after the cutoff, and nothing unknown becomes failed", () => {
  for (const safety of effectSafeties) {
    assert.equal(afterLoss[safety].applied, "succeed");
    assert.equal(afterClosure[safety].applied, "succeed");
    assert.notEqual(afterClosure[safety].unknown, "fail");
    assert.equal(afterClosure[safety].not_applied, "fail", "proof after the cutoff opens nothing");
  }
});

test("W11: only what may be repeated is repeated while its outcome is unknown", () => {
  const repeated = effectSafeties.filter((safety) => afterLoss[safety].unknown === "next_attempt");
  assert.deepEqual(repeated, ["idempotent", "provider_keyed"]);
  assert.equal(afterLoss.manual_resolution.not_applied, "suspend", "only an operator lets it go on");
});
