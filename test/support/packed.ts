import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { delimiter, dirname, join, resolve } from "node:path";
import { until } from "./until.ts";

export const root = resolve(import.meta.dirname, "../..");
const stepMs = 180_000;

/** The Node that runs us first, and nothing else of our environment but where npm keeps things. */
function environment(): Record<string, string | undefined> {
  return {
    PATH: [dirname(process.execPath), process.env["PATH"]].join(delimiter),
    HOME: process.env["HOME"],
    npm_config_cache: process.env["npm_config_cache"],
    npm_config_registry: process.env["npm_config_registry"],
    npm_config_update_notifier: "false",
  };
}

export interface Finished {
  readonly status: number | null;
  readonly output: string;
}

/** Run a program to its end, within a bound. */
export function runIn(cwd: string, program: string, ...words: readonly string[]): Finished {
  const { status, stdout, stderr, error } = spawnSync(program, words, {
    cwd,
    env: environment(),
    encoding: "utf8",
    timeout: stepMs,
    maxBuffer: 64 * 1024 * 1024,
  });
  return { status, output: `${stdout}${stderr}${error === undefined ? "" : String(error)}` };
}

/** The same, of which success is expected. */
export function mustRunIn(cwd: string, program: string, ...words: readonly string[]): string {
  const { status, output } = runIn(cwd, program, ...words);
  if (status !== 0) throw new Error(`${program} ${words.join(" ")} ended with ${status}:\n${output}`);
  return output;
}

/** Build what the package consists of into a folder of its own: the checkout's `dist` is left alone. */
export function stagePackage(stage: string): void {
  mkdirSync(stage, { recursive: true });
  const text = readFileSync(join(root, "package.json"), "utf8");
  const { files } = JSON.parse(text) as { readonly files: readonly string[] };
  writeFileSync(join(stage, "package.json"), text);
  for (const file of files.filter((name) => name !== "dist")) {
    cpSync(join(root, file), join(stage, file), { recursive: true });
  }
  mustRunIn(root, process.execPath, "scripts/build.ts", join(stage, "dist"));
}

/** Gives the tarball. */
export function packInto(folder: string): string {
  const stage = join(folder, "stage");
  stagePackage(stage);
  const said = mustRunIn(stage, "npm", "pack", "--ignore-scripts", "--json", "--pack-destination", folder);
  const [packed] = JSON.parse(said) as readonly { readonly filename: string }[];
  return join(folder, packed?.filename ?? "");
}

export interface Serving {
  said(what: RegExp): Promise<RegExpExecArray>;
  /** Ctrl-C, and its end. */
  interrupt(): Promise<Finished>;
  kill(): void;
}

/** Start a program that runs until it is told to stop. */
export function serveIn(cwd: string, program: string, ...words: readonly string[]): Serving {
  const child = spawn(program, words, {
    cwd,
    env: environment(),
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => (output += text));
  }
  const ended = once(child, "close").then(() => ({ status: child.exitCode, output }));
  return {
    async said(what) {
      const over = () => child.exitCode !== null || child.signalCode !== null;
      const found = await until(
        `it says ${what}`,
        () => what.exec(output) ?? (over() ? "over" : null),
        stepMs,
      );
      if (found === "over") throw new Error(`it ended before it said ${what}:\n${output}`);
      return found;
    },
    async interrupt() {
      child.kill("SIGINT");
      return await ended;
    },
    kill() {
      try {
        process.kill(-(child.pid ?? 0), "SIGKILL");
      } catch {
        // Nobody of the group is left.
      }
    },
  };
}
