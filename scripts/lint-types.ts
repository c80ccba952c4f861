/**
 * The lint's rules that know types, for `npm run check`: of files that changed, or that import what changed, since they
 * last passed. What passed is remembered in `node_modules/.cache`; where there is nothing, it is all of them.
 */
import { spawnSync } from "node:child_process";
import { existsSync, globSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
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
      built: globSync("dist/**/*.d.ts", { cwd: root }).toSorted().map(read),
    });
  } catch {
    return null; // deleted in the meantime, or nothing is installed
  }
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
if (!all && stale.length === 0) process.exit(0);
const words = ["--type-aware", "--deny-warnings", "--no-error-on-unmatched-pattern"];
const { status } = spawnSync("oxlint", [...words, ...(all ? [] : stale)], {
  cwd: root,
  stdio: "inherit",
  shell: process.platform === "win32",
});
process.exitCode = status ?? 1;
if (status === 0 && before !== null) {
  // What was edited meanwhile may have been looked at before or after.
  const now = digests();
  const same = [...before].flatMap(([path, digest]) => (now?.get(path) === digest ? [digest] : []));
  mkdirSync(dirname(cache), { recursive: true });
  writeFileSync(`${cache}.${process.pid}`, JSON.stringify(same));
  renameSync(`${cache}.${process.pid}`, cache);
}
