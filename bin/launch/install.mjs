import { spawn } from "node:child_process";
import { readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { lockDirectory } from "../../src/dev/directory-lock.mjs";
import { npmEndsWithUs } from "./child.mjs";

const waitMsMax = 15 * 60_000;
const outputCharactersMax = 20_000;

const say = (line) => process.stderr.write(`holdfast: ${line}\n`);

/**
 * Installs a folder's packages when they are not exactly those of its lockfile. One process at a time does;
 * `locks` is where they meet. The stamp, a copy of the lockfile inside node_modules, is written last: an
 * install that was killed has none, and is done again.
 */
export async function installPackages({ folder, locks, name, title }) {
  if (isInstalled(folder)) return;
  const onWait = (pid) => say(`waiting for process ${pid}, which is installing ${title} …`);
  const lock = await lockDirectory(locks, { name: `install-${name}`, waitMs: waitMsMax, onWait });
  if ("heldBy" in lock) throw new Error(`process ${lock.heldBy} has been installing ${title} for too long`);
  try {
    // Another process may have installed them while we waited.
    if (!isInstalled(folder)) await install(folder, title);
  } finally {
    lock.release();
  }
}

const stampOf = (folder) => join(folder, "node_modules", ".holdfast-lockfile");

function isInstalled(folder) {
  const lockfile = readText(join(folder, "package-lock.json"));
  if (lockfile === null) throw new Error(`${folder} has no package-lock.json`);
  const stamp = readText(stampOf(folder));
  return stamp === null ? missingPackages(folder).length === 0 : stamp === lockfile;
}

async function install(folder, title) {
  say(`installing ${title} …`);
  const started = Date.now();
  const lockfile = readText(join(folder, "package-lock.json"));
  rmSync(stampOf(folder), { force: true });
  const { status, output } = await npmCi(folder);
  if (status !== 0) throw new Error(`\`npm ci\` in ${folder} failed (${status}):\n${output.trim()}`);
  // npm passes over an optional package that it cannot fetch; on its platform it is needed all the same.
  const missing = missingPackages(folder);
  if (missing.length > 0) throw new Error(`npm could not fetch ${missing.join(", ")}: try again`);
  writeFileSync(`${stampOf(folder)}.new`, lockfile);
  renameSync(`${stampOf(folder)}.new`, stampOf(folder));
  say(`installed ${title} in ${Math.round((Date.now() - started) / 1000)} s`);
}

/**
 * What the lockfile wants on this platform and npm's own record, which it writes when it has finished, does
 * not have: all of it before an install, nothing after one, also after one that was done by hand.
 */
function missingPackages(folder) {
  const wanted = packagesOf(join(folder, "package-lock.json"));
  const present = packagesOf(join(folder, "node_modules", ".package-lock.json"));
  return Object.entries(wanted)
    .filter(([path, entry]) => path !== "" && isForThisPlatform(entry))
    .filter(([path, entry]) => present[path]?.integrity !== entry.integrity || present[path] === undefined)
    .map(([path]) => path.replace(/^.*node_modules\//, ""));
}

function packagesOf(path) {
  const text = readText(path);
  return text === null ? {} : JSON.parse(text).packages;
}

function isForThisPlatform({ os, cpu, libc }) {
  // Which libc runs here is npm's to find out; a package that says nothing else is not asked for.
  if (libc !== undefined) return false;
  return (os?.includes(process.platform) ?? true) && (cpu?.includes(process.arch) ?? true);
}

function npmCi(folder) {
  const flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--include=dev", "--include=optional"];
  const windows = process.platform === "win32";
  const { env, stdio } = npmEndsWithUs(["ignore", "pipe", "pipe"]);
  const child = spawn(windows ? "npm.cmd" : "npm", ["ci", ...flags], {
    cwd: folder,
    env,
    stdio,
    shell: windows,
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text) => (output = (output + text).slice(-outputCharactersMax)));
  }
  return new Promise((resolve, reject) => {
    child.once("error", (error) => reject(new Error(`npm cannot be run (${error.message}): install npm`)));
    child.once("close", (code, signal) => resolve({ status: code ?? signal, output }));
  });
}

function readText(path) {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (error.code === "ENOENT") return null;
    throw error;
  }
}
