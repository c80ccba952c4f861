import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { bundleConsole, compressedBytes, consoleBytesMax } from "../src/main/console-bundle.ts";

/**
 * `npm run build [FOLDER]`: the programs of the package, bundled into `dist`. Code that several share lies in
 * chunks at the top of `dist`, so a file that is found "beside this module" lies there, too.
 */
const root = fileURLToPath(new URL("..", import.meta.url));
const folder = process.argv[2] ?? join(root, "dist");

const programs = {
  // `holdfast` and, for other programs, `holdfast/client`
  "cli/main": "src/cli/main.ts",
  "client/client": "src/client/client.ts",
  // `holdfast/work` and `holdfast/testing`
  "work/sdk": "src/work/sdk.ts",
  "dev/testing": "src/dev/testing.ts",
  // Processes and a thread that these start by file name
  "sandboxes/phase-helper": "src/sandboxes/phase-helper.ts",
  "sessions/agent-program": "src/sessions/agent-program.ts",
  "runtimes/process/supervisor": "src/runtimes/process/supervisor.ts",
  "lease-keeper.thread": "src/core/postgres/lease-keeper.thread.ts",
};

rmSync(folder, { recursive: true, force: true });
await build({
  absWorkingDir: root,
  entryPoints: Object.entries(programs).map(([out, input]) => ({ in: input, out })),
  outdir: folder,
  bundle: true,
  splitting: true,
  format: "esm",
  platform: "node",
  target: "node20",
  // Dependencies are installed beside the package, at the versions that it pins.
  packages: "external",
  // A checkout's own: the package says so when it is asked for.
  external: ["*/examples/engine-module/prepare.ts", "./console-bundle.ts"],
  sourcemap: false,
  legalComments: "none",
  logLevel: "warning",
});

/** The operators' page, which the gateway serves. */
const consoleFiles = await bundleConsole();
mkdirSync(join(folder, "console"));
for (const [name, bytes] of consoleFiles) writeFileSync(join(folder, "console", name), bytes);
const bytes = compressedBytes(consoleFiles);
process.stdout.write(`console: ${bytes} bytes compressed, of ${consoleBytesMax} at most\n`);
if (bytes > consoleBytesMax) throw new Error("the console is too large");

/** The types of what other programs import. */
const { status } = spawnSync(
  process.execPath,
  ["node_modules/typescript/bin/tsc", "--project", "scripts/build/client.json", "--outDir", folder],
  { cwd: root, stdio: "inherit" },
);
process.exitCode = status ?? 1;
