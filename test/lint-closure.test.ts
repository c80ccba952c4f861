import assert from "node:assert/strict";
import { test } from "node:test";
import { closureDigests } from "../scripts/lint/closure.ts";

const files = {
  "src/a.ts": 'import type { B } from "./b.ts";',
  "src/b.ts": 'export type B = import("./c.ts").C;\nexport * from "./program.mjs";',
  "src/c.ts": "export type C = 1;",
  "src/program.mjs": "export const x = 1;",
  "src/program.d.mts": "export const x: number;",
  "src/globals.ts": "declare global { var y: number }",
  "src/alone.ts": "export {};",
  "test/consumer.ts": 'import { submit } from "holdfast/work";',
};

/** Which files are looked at again when this has changed. */
function changedBy(change: Partial<Record<keyof typeof files | "shared", string>>): string[] {
  const of = (changes: typeof change) => {
    const { shared = "", ...texts } = changes;
    return closureDigests({
      texts: new Map(Object.entries({ ...files, ...texts })),
      shared: [shared],
      named: new Map([["holdfast/work", "src/c.ts"]]),
    });
  };
  const after = of(change);
  return [...of({})].flatMap(([path, digest]) => (after.get(path) === digest ? [] : [path]));
}

test("a file is checked again when it, or anything that it imports however far, has changed", () => {
  assert.deepEqual(changedBy({}), []);
  assert.deepEqual(changedBy({ "src/alone.ts": "export const z = 1;" }), ["src/alone.ts"]);
  assert.deepEqual(changedBy({ "src/c.ts": "export type C = 2;" }), [
    "src/a.ts",
    "src/b.ts",
    "src/c.ts",
    // By the package's own name for it.
    "test/consumer.ts",
  ]);
  assert.deepEqual(changedBy({ "src/program.d.mts": "export const x: string;" }), [
    "src/a.ts",
    "src/b.ts",
    "src/program.d.mts",
  ]);
});

test("all are linted again when what counts for all has changed", () => {
  const all = Object.keys(files);
  assert.deepEqual(changedBy({ shared: "another rule" }), all);
  assert.deepEqual(changedBy({ "src/globals.ts": "declare global { var y: string }" }), all);
});
