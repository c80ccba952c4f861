import { readFile, readlink } from "node:fs/promises";
import { isCode } from "./durable.ts";
import { readProcess, run } from "./process-table.ts";

/**
 * Which process, beyond doubt: a pid is reused, (boot id, pid, start time) is not. The pid namespace says
 * whether this pid means anything where we look: from another container it doesn't.
 */
export interface ProcessIdentity {
  readonly boot: string;
  readonly namespace: string;
  readonly pid: number;
  readonly startTime: string;
}

/** `elsewhere`: the process can't be seen from here, so nothing can be said. */
export type Presence = "alive" | "gone" | "elsewhere";

export interface Host {
  readonly boot: string;
  readonly namespace: string;
}

/**
 * Linux gives start times in ticks since boot. macOS has no `/proc`: `ps` gives start times in whole
 * seconds, so a pid reused within the same second would be taken for the old process.
 */
export async function thisHost(): Promise<Host> {
  if (process.platform === "linux") {
    const boot = await readFile("/proc/sys/kernel/random/boot_id", "utf8");
    return { boot: boot.trim(), namespace: await readlink("/proc/self/ns/pid") };
  }
  return { boot: (await run("sysctl", ["-n", "kern.bootsessionuuid"])).trim(), namespace: "host" };
}

export async function identify(pid: number): Promise<ProcessIdentity | null> {
  const [host, entry] = await Promise.all([thisHost(), readProcess(pid)]);
  return entry === null ? null : { ...host, pid, startTime: entry.startTime };
}

/**
 * Is it still there? After a reboot nothing is. The directory is on a disk of this one host: another host
 * that mounts it would take a running process for one of before a reboot.
 */
export async function presence(identity: ProcessIdentity): Promise<Presence> {
  const host = await thisHost();
  if (host.boot !== identity.boot) return "gone";
  if (host.namespace !== identity.namespace) return "elsewhere";
  const entry = await readProcess(identity.pid);
  return entry?.startTime === identity.startTime ? "alive" : "gone";
}

/** False when it had ended before. A pid that others hold by now is left alone. */
export async function signalProcess(
  target: { readonly pid: number; readonly startTime: string },
  signal: NodeJS.Signals,
): Promise<boolean> {
  const entry = await readProcess(target.pid);
  if (entry?.startTime !== target.startTime) return false;
  try {
    process.kill(target.pid, signal);
    return true;
  } catch (error) {
    // EPERM: a setuid program. It stays in the table, so nobody will call the sandbox stopped.
    if (isCode(error, "ESRCH", "EPERM")) return false;
    throw error;
  }
}
