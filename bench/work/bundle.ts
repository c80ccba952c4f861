import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";

const root = join(import.meta.dirname, "../..");

/**
 * Holdfast as the package has it, bundled: sources whose types are stripped as they load start slower, also in the
 * thread that keeps leases. Gives the file to import.
 */
export async function bundled(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "holdfast-bench-bundle-"));
  await build({
    absWorkingDir: root,
    entryPoints: [
      { in: "src/work/sdk.ts", out: "sdk" },
      { in: "src/core/postgres/lease-keeper.thread.ts", out: "lease-keeper.thread" },
    ],
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node22",
    external: ["pg-native"],
    banner: {
      js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);',
    },
    logLevel: "error",
  });
  return join(folder, "sdk.mjs");
}
