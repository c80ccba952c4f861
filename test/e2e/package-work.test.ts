import assert from "node:assert/strict";
import { cpSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { mustRunIn, packInto, root, runIn } from "../support/packed.ts";

const compiler = join(root, "node_modules/typescript/bin/tsc");
const strict = {
  noEmit: true,
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  skipLibCheck: false,
  module: "nodenext",
  target: "es2024",
};

/** An empty project, the tarball and what it depends on, and no checkout behind it. */
describe("the packed package in somebody's program", { concurrency: false }, () => {
  let folder = "";
  let project = "";

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "hf-package-"));
    const tarball = packInto(folder);
    project = await mkdtemp(join(tmpdir(), "hf-consumer-"));
    writeFileSync(join(project, "package.json"), JSON.stringify({ private: true, type: "module" }));
    const quietly = ["--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund"];
    mustRunIn(project, "npm", "install", ...quietly, tarball);
    cpSync(join(root, "test/fixtures/consumer"), project, { recursive: true });
  });
  after(async () => {
    for (const path of [folder, project]) await rm(path, { recursive: true, force: true, maxRetries: 5 });
  });

  function typeCheck(file: string, options: object): void {
    const compilerOptions = { ...strict, ...options };
    writeFileSync(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions, files: [file] }));
    mustRunIn(project, process.execPath, compiler, "--project", "tsconfig.json");
  }

  test("M7: its types check, libraries' too, beside no other types at all", () => {
    typeCheck("types.ts", { lib: ["es2024", "dom"], types: [] });
  });

  test("M7: a program with the packed package type-checks, and runs its Work on the pinned server under the controlled clock, with nothing skipped", () => {
    typeCheck("program.ts", { lib: ["es2024"], types: ["node"] });
    const { status, output } = runIn(
      project,
      process.execPath,
      "--test",
      "--test-reporter=tap",
      "program.ts",
    );
    assert.equal(status, 0, output);
    for (const line of ["# tests 5", "# pass 5", "# skipped 0", "# todo 0", "# cancelled 0"])
      assert.match(output, new RegExp(`^${line}$`, "m"), output);
  });
});
