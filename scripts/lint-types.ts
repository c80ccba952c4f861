/**
 * Types and lint, for `npm run check`, by the one program that both need: of files that changed, or that import what
 * changed, since they last passed. What passed is remembered in `node_modules/.cache`; where there is nothing, it is all of
 * them. Rules that need no types are for all files each time: some look at how files hang together.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { closureDigests } from "./lint/closure.ts";

const root = resolve(import.meta.dirname, "..");
const cache = join(root, "node_modules/.cache/lint-types.json");
const read = (path: string) => readFileSync(join(root, path), "utf8");
/** What is longer than a command line may be is cheaper to look at as a whole. */
const filesMax = 200;

/** Files of code and configuration, as they are now; null where there is no way to know what belongs to us. */
function digests(): Map<string, string> | null {
  const { status, stdout } = spawnSync("git", ["ls-files", "-co", "--exclude-standard", "-z"], {
    cwd: root,
    encoding: "utf8",
  });
  if (status !== 0) return null;
  const ours = stdout.split("\0").filter((path) => /\.([cm]?[jt]sx?|json)$/.test(path));
  // What was deleted and not committed is still listed.
  const paths = ours.filter((path) => existsSync(join(root, path)));
  try {
    const texts = new Map(paths.map((path) => [path, read(path)]));
    const settings = paths.filter((path) =>
      /(^|\/)(tsconfig.*|package(-lock)?|\.oxlintrc)\.json$/.test(path),
    );
    const installed = read("node_modules/.package-lock.json");
    return closureDigests({
      texts,
      shared: [installed, ...settings.map((path) => texts.get(path) ?? "")],
      named: namedSources(),
    });
  } catch {
    return null; // deleted in the meantime, or nothing is installed
  }
}

/** What the package's own names stand for in this checkout. */
function namedSources(): ReadonlyMap<string, string> {
  const { paths } = (JSON.parse(read("tsconfig.json")) as Settings).compilerOptions;
  return new Map(
    Object.entries(paths).flatMap(([name, [source]]) =>
      source === undefined ? [] : [[name, source.replace(/^\.\//, "")]],
    ),
  );
}

interface Settings {
  readonly compilerOptions: { readonly paths: Readonly<Record<string, readonly string[]>> };
}

function passedBefore(): ReadonlySet<unknown> {
  try {
    const known: unknown = JSON.parse(readFileSync(cache, "utf8"));
    return new Set(Array.isArray(known) ? known : []);
  } catch {
    return new Set();
  }
}

const before = digests();
const passed = passedBefore();
const stale = [...(before ?? [])].flatMap(([path, digest]) => (passed.has(digest) ? [] : [path]));
const all = before === null || stale.length > filesMax;
const lint = (...words: string[]) =>
  spawnSync("oxlint", ["--deny-warnings", "--no-error-on-unmatched-pattern", ...words], {
    cwd: root,
    stdio: "inherit",
    shell: process.platform === "win32",
    // A program's types are wanted until its end: collecting them every few megabytes costs a third of the time.
    env: { ...process.env, GOGC: "off", GOMEMLIMIT: "2GiB" },
  }).status;

// Of all files at once the second one says the same.
const plain = all ? 0 : lint();
const typed = !all && stale.length === 0 ? 0 : lint("--type-aware", "--type-check", ...(all ? [] : stale));
const status = plain === 0 ? typed : plain;
process.exitCode = status ?? 1;
if (status === 0 && before !== null) {
  // What was edited meanwhile may have been looked at before or after.
  const now = digests();
  const same = [...before].flatMap(([path, digest]) => (now?.get(path) === digest ? [digest] : []));
  mkdirSync(dirname(cache), { recursive: true });
  writeFileSync(`${cache}.${process.pid}`, JSON.stringify(same));
  renameSync(`${cache}.${process.pid}`, cache);
}
