import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";

// Plain JavaScript, because the launcher takes this lock before it knows which Node can run TypeScript.

const attemptsMax = 8;

/**
 * Who a process is: a pid alone is reused, a pid with its start time and the boot it belongs to is not.
 * Null when no such process lives; a zombie is dead, it only waits for its parent.
 */
export function processIdentity(pid) {
  if (!alive(pid)) return null;
  if (process.platform === "linux") return linuxIdentity(pid);
  // Without a cheap start time, a live pid is taken for the process that it was.
  if (process.platform === "win32") return digest(String(pid));
  try {
    const started = execFileSync("ps", ["-o", "lstart=", "-p", String(pid)], { encoding: "utf8" });
    return digest(`${pid} ${started.trim()}`);
  } catch {
    return null;
  }
}

/**
 * Takes the lock on a directory, or says which live process has it. Every contender first writes a file of
 * its own and only then looks for others, so of two that come at once at least one sees the other and both
 * never hold it. The file names its owner, so one that a SIGKILL left behind is recognised and removed.
 */
export async function lockDirectory(directory, { name = "lock", waitMs = 0, onWait } = {}) {
  mkdirSync(directory, { recursive: true });
  const started = performance.now();
  for (let attempt = 1; ; attempt++) {
    const mine = `${name}-${process.pid}-${processIdentity(process.pid)}-${randomBytes(4).toString("hex")}`;
    const path = join(directory, mine);
    writeFileSync(path, "", { flag: "wx", mode: 0o600 });
    const owner = otherOwner(directory, name, mine);
    if (owner === null) return { release: () => rmSync(path, { force: true }) };
    rmSync(path, { force: true });
    const patient = attempt < attemptsMax || performance.now() - started < waitMs;
    if (!patient) return { heldBy: owner };
    if (attempt === attemptsMax) onWait?.(owner);
    // Two contenders that saw each other come back at different moments.
    await wait(10 + Math.random() * (attempt < attemptsMax ? 20 : 200));
  }
}

function otherOwner(directory, name, mine) {
  for (const entry of readdirSync(directory)) {
    const match = entry === mine ? null : /^(.+)-(\d+)-([0-9a-f]+)-[0-9a-f]+$/.exec(entry);
    if (match === null || match[1] !== name) continue;
    const pid = Number(match[2]);
    if (processIdentity(pid) === match[3]) return pid;
    rmSync(join(directory, entry), { force: true });
  }
  return null;
}

function alive(pid) {
  if (!Number.isSafeInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === "EPERM";
  }
}

function linuxIdentity(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The command's name stands in parentheses and may contain spaces; the state is the field after it.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    if (fields[0] === "Z" || fields[0] === "X") return null;
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    return digest(`${boot} ${pid} ${fields[19]}`);
  } catch {
    return null;
  }
}

function digest(text) {
  return createHash("sha256").update(text).digest("hex").slice(0, 16);
}
