import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { mustRunIn, root, stagePackage } from "../support/packed.ts";

const program = `import { type Client, createClient, type JobView } from "holdfast/client";
const client: Client = createClient({ url: "http://127.0.0.1:1", token: "x" });
export const named = async (id: string): Promise<JobView> => await client.getJob(id);
`;

/** As somebody's program sees the built package, with the one dependency that the client needs. */
test("`holdfast/client` can be imported, and its types check", () => {
  const project = mkdtempSync(join(tmpdir(), "hf-client-"));
  try {
    stagePackage(join(project, "node_modules/holdfast"));
    symlinkSync(join(root, "node_modules/typebox"), join(project, "node_modules/typebox"));
    writeFileSync(join(project, "package.json"), JSON.stringify({ private: true, type: "module" }));
    writeFileSync(join(project, "program.ts"), program);
    const flags = "--noEmit --strict --module nodenext --target es2024 --lib es2024,dom";
    const tsc = join(root, "node_modules/typescript/bin/tsc");
    mustRunIn(project, process.execPath, tsc, ...flags.split(" "), "program.ts");
    mustRunIn(project, process.execPath, "--input-type=module", "-e", 'await import("holdfast/client");');
  } finally {
    rmSync(project, { recursive: true, force: true });
  }
});
