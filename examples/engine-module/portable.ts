import { execFile } from "node:child_process";
import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const folder = fileURLToPath(new URL(".", import.meta.url));
const helperSource = fileURLToPath(new URL("../../src/sandboxes/phase-helper.ts", import.meta.url));

interface Phase {
  readonly kind: string;
  readonly command: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** Unpacks what the phase's environment carries, and goes on with the script that is the command's last word. */
const begin = `
const { execFileSync } = require("node:child_process");
const { mkdirSync } = require("node:fs");
const { resolve } = require("node:path");
for (const [name, folder] of [["EXAMPLE_KIT", "."], ["EXAMPLE_REPOSITORIES", "repositories"]]) {
  if (!process.env[name]) continue;
  mkdirSync(folder, { recursive: true });
  execFileSync("tar", ["-xz", "-C", folder], { input: Buffer.from(process.env[name], "base64") });
}
process.env.HOLDFAST_PHASE_HELPER = resolve("kit/holdfast-phase.mjs");
import(require("node:url").pathToFileURL(resolve(process.argv[1])).href);
`.trim();

/**
 * The same job for sandboxes that share no disk with us: each phase carries its scripts and the helper, and the
 * source phase both repositories, packed in their environment. An image with Node, git and tar is enough.
 */
export async function portableJob(
  job: Readonly<Record<string, unknown>>,
  repositories: string,
): Promise<Record<string, unknown>> {
  const kit = await packKit();
  const packed = await packed64(repositories, ["engine.git", "module.git"]);
  const { phases, sources, ...spec } = job["spec"] as {
    readonly phases: readonly Phase[];
    readonly sources: Readonly<Record<string, { readonly repository: string; readonly ref: string }>>;
  };
  const portable = phases.map((phase) => ({
    ...phase,
    command: ["node", "--eval", begin, `kit/phases/${phase.kind}.mjs`],
    env: {
      ...phase.env,
      EXAMPLE_KIT: kit,
      ...(phase.kind === "source" ? { EXAMPLE_REPOSITORIES: packed } : {}),
    },
  }));
  const within = Object.entries(sources).map(([name, { ref }]) => [
    name,
    { repository: `repositories/${name}.git`, ref },
  ]);
  return { ...job, spec: { ...spec, sources: Object.fromEntries(within) as unknown, phases: portable } };
}

/** The phases' scripts, and the helper as one file without dependencies. */
async function packKit(): Promise<string> {
  const { build } = await import("esbuild");
  const aside = await mkdtemp(join(tmpdir(), "holdfast-kit-"));
  try {
    await cp(join(folder, "phases"), join(aside, "kit", "phases"), { recursive: true });
    await build({
      entryPoints: [helperSource],
      outfile: join(aside, "kit", "holdfast-phase.mjs"),
      bundle: true,
      minify: true,
      format: "esm",
      platform: "node",
      target: "node20",
      legalComments: "none",
      logLevel: "warning",
    });
    return await packed64(aside, ["kit"]);
  } finally {
    await rm(aside, { recursive: true, force: true });
  }
}

async function packed64(directory: string, words: readonly string[]): Promise<string> {
  const { stdout } = await run("tar", ["-C", directory, "-cz", ...words], {
    encoding: "buffer",
    maxBuffer: 1024 * 1024,
  });
  return stdout.toString("base64");
}
