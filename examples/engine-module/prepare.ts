import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { parse } from "yaml";

export { portableJob } from "./portable.ts";

const run = promisify(execFile);

/** This folder. */
export const exampleFolder = fileURLToPath(new URL(".", import.meta.url)).replace(/[\\/]$/, "");

export type ExampleRepositories = Readonly<Record<"engine" | "module", ExampleRepository>>;
export interface ExampleRepository {
  readonly path: string;
  readonly commit: string;
}

/**
 * Make two real git repositories, `engine.git` and `module.git`, from the example's files. The same files give the
 * same commits, whoever makes them, whenever, with whatever git configuration. Making them again changes nothing.
 */
export async function prepareRepositories(directory: string): Promise<ExampleRepositories> {
  await mkdir(directory, { recursive: true });
  const engine = await prepareRepository(directory, "engine", "Add the engine");
  const module = await prepareRepository(directory, "module", "Add the site's content");
  return { engine, module };
}

/** The job file as a plain object, with its placeholders filled in. `stepMs` stretches each step, for demonstrations. */
export async function exampleJob(places: {
  readonly repositories: string;
  readonly example?: string;
  readonly stepMs?: number;
}): Promise<Record<string, unknown>> {
  const { repositories, example = exampleFolder, stepMs = 0 } = places;
  const values: Readonly<Record<string, string>> = { repositories, example };
  const fill = (value: unknown): unknown => {
    if (typeof value === "string")
      return value.replaceAll(/\$\{(\w+)\}/g, (all, name) => values[name] ?? all);
    if (Array.isArray(value)) return value.map(fill);
    if (typeof value !== "object" || value === null) return value;
    const filled = Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, fill(inner)]));
    return "command" in filled && stepMs > 0
      ? { ...filled, env: { EXAMPLE_STEP_MS: String(stepMs) } }
      : filled;
  };
  // Filled in after parsing, so that no folder's name can change what the file means.
  return fill(parse(await readFile(join(example, "job.yaml"), "utf8"))) as Record<string, unknown>;
}

const gitEnvironment = {
  ...(process.env["PATH"] === undefined ? {} : { PATH: process.env["PATH"] }),
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_CONFIG_NOSYSTEM: "1",
  LC_ALL: "C",
};

async function prepareRepository(
  directory: string,
  name: string,
  subject: string,
): Promise<ExampleRepository> {
  const path = join(directory, `${name}.git`);
  const stream = await importStream(join(exampleFolder, name), subject);
  if ((await stat(path).catch(() => undefined)) !== undefined) {
    // There already: the same commit again, or the one after the example's files were edited.
    return { path, commit: await importInto(path, stream) };
  }
  // Made beside its place and renamed, so that a crash leaves no half repository.
  const partial = await mkdtemp(join(directory, `${name}.partial-`));
  try {
    await run("git", ["init", "--quiet", "--bare", "--template=", "--initial-branch=main", partial], {
      env: gitEnvironment,
    });
    const commit = await importInto(partial, stream);
    await rename(partial, path);
    return { path, commit };
  } finally {
    await rm(partial, { recursive: true, force: true });
  }
}

async function importInto(path: string, stream: Buffer): Promise<string> {
  const git = spawn("git", ["--git-dir", path, "fast-import", "--quiet", "--force"], {
    env: gitEnvironment,
    stdio: ["pipe", "ignore", "inherit"],
  });
  git.stdin.end(stream);
  const [code] = (await once(git, "close")) as [number | null];
  if (code !== 0) throw new Error(`git fast-import ended with ${code}`);
  const { stdout } = await run("git", ["--git-dir", path, "rev-parse", "refs/heads/main"], {
    env: gitEnvironment,
  });
  return stdout.trim();
}

/** One commit with all files of a folder, as `git fast-import` reads it: no working tree, no filters, no clock. */
async function importStream(folder: string, subject: string): Promise<Buffer> {
  const who = "Holdfast example <example@holdfast.invalid> 1767225600 +0000";
  const parts: (string | Buffer)[] = [
    `commit refs/heads/main\nauthor ${who}\ncommitter ${who}\ndata ${Buffer.byteLength(subject) + 1}\n${subject}\n\n`,
    "deleteall\n",
  ];
  for (const name of await filesBelow(folder, "")) {
    const bytes = await readFile(join(folder, name));
    parts.push(`M 100644 inline ${name}\ndata ${bytes.length}\n`, bytes, "\n");
  }
  return Buffer.concat(parts.map((part) => (typeof part === "string" ? Buffer.from(part) : part)));
}

async function filesBelow(folder: string, below: string): Promise<string[]> {
  const names: string[] = [];
  for (const entry of await readdir(join(folder, below), { withFileTypes: true })) {
    const name = below === "" ? entry.name : `${below}/${entry.name}`;
    if (entry.name.startsWith(".")) continue;
    if (entry.isDirectory()) names.push(...(await filesBelow(folder, name)));
    else names.push(name);
  }
  return names.sort();
}
