import { spawnSync } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

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
  target: "node22",
  // Dependencies are installed beside the package, at the versions that it pins.
  packages: "external",
  // A checkout's own: the package says so when it is asked for.
  external: ["*/examples/engine-module/prepare.ts"],
  sourcemap: false,
  legalComments: "none",
  logLevel: "warning",
});

/** The types of what other programs import. */
const { status } = spawnSync(
  process.execPath,
  ["node_modules/typescript/bin/tsc", "--project", "scripts/build/client.json", "--outDir", folder],
  { cwd: root, stdio: "inherit" },
);
process.exitCode = status ?? 1;
