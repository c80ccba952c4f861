import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const root = resolve(import.meta.dirname, "../..");
const main = join(root, "src/cli/main.ts");
/** Tests start the same sources many times: compiled once, they start in a third of the time. */
const compileCache = join(root, "node_modules/.cache/holdfast-tests");

export interface CommandOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly input?: string | Buffer;
  readonly cwd?: string;
}

export interface CommandResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** The command line as its users start it, with nothing of our environment but the path. */
export function startCommand(
  words: readonly string[],
  { env = {}, cwd = tmpdir() }: CommandOptions = {},
): ChildProcessWithoutNullStreams {
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", main, ...words], {
    cwd,
    env: { PATH: process.env["PATH"], NODE_COMPILE_CACHE: compileCache, ...env },
  });
  child.stdout.setEncoding("utf8");
  child.stderr.setEncoding("utf8");
  // It may end without reading what we give it.
  child.stdin.on("error", () => undefined);
  return child;
}

export async function runCommand(
  words: readonly string[],
  options: CommandOptions = {},
): Promise<CommandResult> {
  const child = startCommand(words, options);
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (text: string) => (stdout += text));
  child.stderr.on("data", (text: string) => (stderr += text));
  child.stdin.end(options.input ?? "");
  await once(child, "close");
  return { code: child.exitCode, stdout, stderr };
}
