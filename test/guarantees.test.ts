import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fillGuarantees, testTitles } from "../scripts/guarantees/titles.ts";

const root = join(import.meta.dirname, "..");
const document = readFileSync(join(root, "docs/guarantees.md"), "utf8");

test("every promise that a test carries has a row, and every row a test", () => {
  const { withoutRow, withoutTest } = fillGuarantees(document, testTitles(root));
  assert.deepEqual(withoutRow, [], "carried by tests, without a row in docs/guarantees.md");
  assert.deepEqual(withoutTest, [], "in docs/guarantees.md, without a test");
});

test("the rows name the tests that are there", () => {
  assert.equal(
    fillGuarantees(document, testTitles(root)).text,
    document,
    "`npm run generate` fills docs/guarantees.md",
  );
});

test("a promise without a test, and a test without a promise, are seen", () => {
  const row = "| E1 | a promise | – |";
  const seen = fillGuarantees(row, [{ file: "a.test.ts", title: "E2: other", ids: ["E2"] }]);
  assert.deepEqual([seen.withoutTest, seen.withoutRow], [["E1"], ["E2"]]);
});
