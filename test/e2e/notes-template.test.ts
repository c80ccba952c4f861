import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cp, mkdtemp, readFile, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { notesAgent, notesFolder } from "../../examples/notes-agent/prepare.ts";
import { parseAgentFile } from "../../src/wire/agent-file.ts";

const root = resolve(import.meta.dirname, "../..");
const printed = (folder: string) =>
  parseAgentFile(
    execFileSync(process.execPath, ["examples/notes-agent/template.mjs"], { cwd: folder }),
    "standard input",
  );

test("the example's agent is what its template prints, in a folder of any name", async (t) => {
  assert.deepEqual(printed(root), await notesAgent());
  const base = await realpath(await mkdtemp(join(tmpdir(), "holdfast-notes-")));
  t.after(() => rm(base, { recursive: true }));
  // Of folders with a backslash Node itself runs no module.
  for (const name of ["c#", "b&w", "a b", "$& $1 ${x}", "100%", 'say "it\'s"', "d: [e] | f", "ünï"]) {
    const folder = join(base, name);
    await cp(notesFolder, join(folder, "examples", "notes-agent"), { recursive: true });
    assert.equal(printed(folder).spec.command.at(-1), join(folder, "examples", "notes-agent", "notes.mjs"));
  }
});

test("what the documents say to type is the template", async () => {
  for (const file of ["README.md", "examples/notes-agent/README.md"]) {
    const text = await readFile(join(root, file), "utf8");
    assert.match(text, /^node examples\/notes-agent\/template\.mjs \| npx holdfast agent apply -$/m);
    assert.doesNotMatch(text, /\bsed .*\$PWD/);
  }
});
