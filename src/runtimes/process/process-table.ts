import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { isCode } from "./durable.ts";

/** A process that runs. One that has ended and only waits to be collected (a zombie) is not in the table. */
export interface ProcessEntry {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  readonly startTime: string;
  /** The `HOLDFAST_SANDBOX=…` and `HOLDFAST_SUPERVISOR=…` entries of the environment it was started with. */
  readonly marks: readonly string[];
}

type Facts = Omit<ProcessEntry, "marks">;

export async function readProcess(pid: number): Promise<Facts | null> {
  if (process.platform === "linux") return parseStat(await readGone(`/proc/${pid}/stat`));
  return (await listByPs(["-p", String(pid)]))[0] ?? null;
}

/** The start time of our own child, without a pause in which we could be killed. Null on macOS. */
export function readStartTimeSync(pid: number): string | null {
  if (process.platform !== "linux") return null;
  try {
    return parseStat(readFileSync(`/proc/${pid}/stat`, "latin1"))?.startTime ?? null;
  } catch (error) {
    if (isCode(error, "ENOENT", "ESRCH")) return null;
    throw error;
  }
}

/** All processes of this host, or of this pid namespace. Not one instant: look twice before you conclude. */
export async function readProcesses(): Promise<readonly ProcessEntry[]> {
  if (process.platform !== "linux") return listByPs(["-A"]);
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const found: ProcessEntry[] = [];
  for (const pid of pids) {
    const facts = parseStat(await readGone(`/proc/${pid}/stat`));
    if (facts === null) continue;
    const environment = await readGone(`/proc/${pid}/environ`);
    found.push({ ...facts, marks: environment.split("\0").filter(isMark) });
  }
  return found;
}

const isMark = (entry: string): boolean => /^HOLDFAST_(?:SANDBOX|SUPERVISOR)=/.test(entry);

/** Empty when the process ended meanwhile, or its environment is another user's. */
async function readGone(path: string): Promise<string> {
  try {
    return await readFile(path, "latin1");
  } catch (error) {
    if (isCode(error, "ENOENT", "ESRCH", "EACCES", "EPERM")) return "";
    throw error;
  }
}

/** proc_pid_stat(5). The name stands in parentheses and may hold spaces and parentheses itself. */
export function parseStat(stat: string): Facts | null {
  const pid = Number.parseInt(stat, 10);
  const rest = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state, parent, group, session] = rest;
  const startTime = rest[19];
  if (Number.isNaN(pid) || startTime === undefined || state === "Z" || state === "X") return null;
  return { pid, parent: Number(parent), group: Number(group), session: Number(session), startTime };
}

/**
 * macOS. Weaker than /proc: start times have whole seconds; the environment is shown only of our own
 * processes and not of the system's protected binaries, so such a process is found by its group or parent
 * alone; sessions have no number, so the process group stands for them.
 */
async function listByPs(selection: readonly string[]): Promise<readonly ProcessEntry[]> {
  const format = "pid=,ppid=,pgid=,stat=,lstart=,command=";
  return parsePs(await run("ps", [...selection, "-E", "-ww", "-o", format]));
}

export function parsePs(output: string): readonly ProcessEntry[] {
  const found: ProcessEntry[] = [];
  for (const line of output.split("\n")) {
    const match = /^\s*(\d+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(\S+\s+\S+\s+\S+\s+\S+\s+\d{4})\s(.*)$/.exec(line);
    if (match === null) continue;
    const [, pid = "", parent, group, state = "", started = "", command = ""] = match;
    if (state.startsWith("Z")) continue;
    const facts = { pid: Number(pid), parent: Number(parent), group: Number(group), session: Number(group) };
    found.push({
      ...facts,
      startTime: started.replace(/\s+/g, " "),
      marks: command.split(/\s+/).filter(isMark),
    });
  }
  return found;
}

/** Standard output of a system program; empty when it says that it found nothing. */
export async function run(program: string, args: readonly string[]): Promise<string> {
  try {
    const options = {
      timeout: 10_000,
      maxBuffer: 64 * 1024 * 1024,
      env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C" },
    };
    return (await promisify(execFile)(program, [...args], options)).stdout;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === 1) return "";
    throw error;
  }
}
