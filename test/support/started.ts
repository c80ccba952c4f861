import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdir, readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { readProcesses } from "../../src/runtimes/process/process-table.ts";
import { until } from "./until.ts";

const root = resolve(import.meta.dirname, "../..");

/** `npm start`, as a process group of its own. */
export interface Started {
  /** The launcher's pid and its group's. */
  readonly pid: number;
  readonly output: () => string;
  /** Waits for output like this, and fails when the program ends before. */
  readonly said: (what: RegExp) => Promise<RegExpExecArray>;
  readonly signal: (signal: NodeJS.Signals) => void;
  readonly signalGroup: (signal: NodeJS.Signals) => void;
  readonly ended: Promise<{ readonly status: number | NodeJS.Signals | null; readonly output: string }>;
}

export interface StartScope {
  readonly after: (hook: () => void | Promise<void>) => void;
}

/** A loaded machine takes its time. */
const patienceMs = 120_000;

/** Without a launcher and without the example. */
export const startDev = (scope: StartScope, directory: string): Started =>
  launch(scope, ["src/cli/main.ts", "dev", "--directory", directory, "--port", "0"]);

export const start = (
  scope: StartScope,
  directory: string,
  args: readonly string[] = [],
  options: { readonly user?: { readonly uid: number; readonly gid: number } } = {},
): Started =>
  launch(scope, ["bin/run.mjs", "start", "--directory", directory, "--port", "0", ...args], options);

function launch(
  scope: StartScope,
  words: readonly string[],
  { user }: { readonly user?: { readonly uid: number; readonly gid: number } } = {},
): Started {
  const as = user && ["setpriv", `--reuid=${user.uid}`, `--regid=${user.gid}`, "--clear-groups"];
  const [program = "", ...rest] = [...(as ?? []), process.execPath, ...words];
  const child = spawn(program, rest, {
    cwd: root,
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
    env: { PATH: process.env["PATH"] },
  });
  const pid = child.pid ?? 0;
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => (output += text));
  }
  let over = false;
  // What outlives the launcher may hold its streams open: its own end is what counts.
  const ended = once(child, "exit").then(async ([code, signal]: unknown[]) => {
    over = true;
    await until("the rest of the output", () => child.stdout.readableEnded, 2_000).catch(() => undefined);
    return { status: (code ?? signal) as number | NodeJS.Signals | null, output };
  });
  const signalGroup = (signal: NodeJS.Signals) => {
    try {
      process.kill(-pid, signal);
    } catch {
      // Nobody of the group is left.
    }
  };
  scope.after(async () => {
    signalGroup("SIGKILL");
    await ended;
  });
  return {
    pid,
    output: () => output,
    async said(what) {
      const word = await until(
        `npm start says ${what}`,
        () => what.exec(output) ?? (over ? "ended" : null),
        patienceMs,
      );
      if (word === "ended") throw new Error(`npm start ended before it said ${what}:\n${output}`);
      return word;
    },
    signal: (signal) => void child.kill(signal),
    signalGroup,
    ended,
  };
}

export interface Artifact {
  readonly path: string;
  readonly sha256: string;
  readonly bytes: number;
}

/** What the last line of `npm start -- --exit` says. */
export function lastArtifact(output: string): Artifact {
  const last = output.trimEnd().split("\n").at(-1) ?? "";
  const [, path, sha256, bytes] = /^artifact (\/.+) sha256:([0-9a-f]{64}) (\d+) bytes$/.exec(last) ?? [];
  if (path === undefined || sha256 === undefined) throw new Error(`not the artifact's line: ${output}`);
  return { path, sha256, bytes: Number(bytes) };
}

/** Processes of these groups, and those that name this folder in their words, environment or working folder. */
export async function processesOf(groups: ReadonlySet<number>, directory: string): Promise<string[]> {
  const found: string[] = [];
  for (const { pid, group } of await readProcesses()) {
    if (pid === process.pid) continue;
    const words = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
    const environment = await readFile(`/proc/${pid}/environ`, "utf8").catch(() => "");
    if (groups.has(group) || words.includes(directory) || environment.includes(directory))
      found.push(`${pid} ${words.replaceAll("\0", " ")}`);
  }
  return found;
}

/** The commands that run in a store's sandboxes now, as the process runtime notes them: `NAME UID PID`. */
export async function commandsIn(directory: string): Promise<string[]> {
  const sandboxes = `${directory}/sandboxes`;
  const found: string[] = [];
  for (const name of await readdir(sandboxes).catch(() => [])) {
    if (name.startsWith(".")) continue;
    for (const uid of await readdir(`${sandboxes}/${name}`).catch(() => [])) {
      const text = await readFile(`${sandboxes}/${name}/${uid}/command.json`, "utf8").catch(() => "");
      const pid = /"pid":\s*(\d+)/.exec(text)?.[1];
      if (pid !== undefined) found.push(`${name} ${uid} ${pid}`);
    }
  }
  return found;
}
