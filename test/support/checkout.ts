import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import type { TestContext } from "node:test";

const root = resolve(import.meta.dirname, "../..");

/**
 * A stand-in for npm: it notes its pid, waits while the file `npm-waits` exists, and leaves what npm leaves.
 * `PACKAGES` says what it "fetched".
 */
const npm = `#!${process.execPath}
import { appendFileSync, existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
appendFileSync("npm-runs", process.pid + "\\n");
rmSync("node_modules", { recursive: true, force: true });
mkdirSync("node_modules");
const finish = () => {
  if (existsSync("npm-waits")) return setTimeout(finish, 10);
  writeFileSync("node_modules/.package-lock.json", JSON.stringify({ packages: JSON.parse(process.env.PACKAGES) }));
};
finish();
`;

export interface Checkout {
  readonly path: string;
  /** Starts `bin/run.mjs start ARGS`, which runs the program. */
  readonly launch: (...args: readonly string[]) => Launch;
  /** The pids of the npm runs so far. */
  readonly npmRuns: () => number[];
  readonly write: (name: string, content: string) => void;
  readonly remove: (name: string) => void;
}

export interface Launch {
  readonly pid: number;
  readonly output: () => string;
  readonly ended: Promise<{ readonly status: number | null; readonly output: string }>;
  readonly kill: (signal: NodeJS.Signals) => void;
}

/** A checkout with our launcher, a lockfile of one package, a stand-in for npm, and a program to start. */
export function makeCheckout(t: TestContext, program: string): Checkout {
  const path = mkdtempSync(join(tmpdir(), "holdfast-checkout-"));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  const write = (name: string, content: string) => {
    mkdirSync(dirname(join(path, name)), { recursive: true });
    writeFileSync(join(path, name), content);
  };
  cpSync(join(root, "bin"), join(path, "bin"), { recursive: true });
  write("src/dev/directory-lock.mjs", readFileSync(join(root, "src/dev/directory-lock.mjs"), "utf8"));
  write("src/cli/main.ts", program);
  write("package.json", `{ "type": "module" }`);
  write("package-lock.json", JSON.stringify({ packages: { "": {}, ...onePackage } }));
  write("npm/npm", npm);
  chmodSync(join(path, "npm/npm"), 0o755);
  return {
    path,
    write,
    remove: (name) => rmSync(join(path, name)),
    launch: (...args) => launch(t, path, args),
    npmRuns: () => readLines(join(path, "npm-runs")).map(Number),
  };
}

export const onePackage = { "node_modules/one": { version: "1.0.0", integrity: "sha512-one" } };

function launch(t: TestContext, path: string, args: readonly string[]): Launch {
  const child = spawn(process.execPath, ["bin/run.mjs", "start", ...args], {
    cwd: path,
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      PATH: [join(path, "npm"), process.env["PATH"]].join(delimiter),
      PACKAGES: JSON.stringify(onePackage),
    },
  });
  t.after(() => child.kill("SIGKILL"));
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => (output += text));
  }
  const ended = once(child, "close").then(([status]: unknown[]) => ({
    status: typeof status === "number" ? status : null,
    output,
  }));
  return { pid: child.pid ?? 0, output: () => output, ended, kill: (signal) => void child.kill(signal) };
}

function readLines(path: string): string[] {
  try {
    return readFileSync(path, "utf8").trim().split("\n");
  } catch {
    return [];
  }
}
