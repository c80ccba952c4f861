import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { runInNewProcess } from "../support/strict-gate.ts";

const source = (body: string) => `import { describe, test } from "node:test";\n${body}\n`;

test("M7: the strict gate is shut by a skipped, postponed or failed test, a promise without one, and by nothing to run", async () => {
  const folder = await mkdtemp(join(tmpdir(), "hf-gate-"));
  try {
    const judge = async (name: string, body: string, promises: readonly string[] = []) => {
      const file = join(folder, `${name}.test.mjs`);
      await writeFile(file, source(body));
      return runInNewProcess([file], promises);
    };
    const good = await judge("good", 'describe("W5: a part", () => test("W1 W2: holds", () => {}));', [
      "W1",
      "W2",
    ]);
    assert.deepEqual(good, { passed: 1, faults: [] });
    const shut = async (
      name: string,
      body: string,
      promises: readonly string[],
      ...faults: readonly RegExp[]
    ) => {
      const verdict = await judge(name, body, promises);
      for (const fault of faults) assert.match(verdict.faults.join("\n"), fault);
      assert.ok(verdict.faults.length >= faults.length);
    };
    await shut(
      "skipped",
      'test("W1: a", () => {}); test("W2: b", { skip: true }, () => {});',
      ["W1", "W2"],
      /skipped: W2/,
      /no test showed W2/,
    );
    await shut("inside", 'test("W1: a", (t) => t.skip("no server"));', [], /skipped: W1/, /no test ran/);
    await shut("suite", 'describe.skip("all", () => test("W1: a", () => {}));', [], /skipped: all/);
    await shut("later", 'test.todo("W1: a");', [], /to be done: W1/);
    await shut("failed", 'test("W1: a", () => { throw new Error("no"); });', [], /failed: W1/);
    await shut("empty", "", ["W3"], /no test showed W3/);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
