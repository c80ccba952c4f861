import { setTimeout as delay } from "node:timers/promises";
import { signalProcess } from "./identity.ts";
import { type ProcessEntry, readProcesses } from "./process-table.ts";

/** What makes a process one of the sandbox's: a marker, the command's session or group, or such a parent. */
export interface Belonging {
  readonly marks: readonly string[];
  /**
   * The command's pid, which is its session and group. Null when it can't be told any more whose number that
   * is. Needed because a program may be started with an empty environment.
   */
  readonly session: number | null;
  /** The supervisor itself, when it is the one that asks. */
  readonly except: number;
}

/**
 * The processes that belong, descendants included, wherever they moved. What cleared its environment, left
 * the session and lost its parent is not found: the process runtime isolates nothing and says so.
 */
export function selectCarriers(
  table: readonly ProcessEntry[],
  belonging: Belonging,
): readonly ProcessEntry[] {
  const { marks, session, except } = belonging;
  const found = new Map<number, ProcessEntry>();
  for (const entry of table) {
    const inSession = session !== null && (entry.session === session || entry.group === session);
    if (inSession || entry.marks.some((mark) => marks.includes(mark))) found.set(entry.pid, entry);
  }
  found.delete(except);
  for (let grown = true; grown; ) {
    const children = table.filter(
      (entry) => found.has(entry.parent) && !found.has(entry.pid) && entry.pid !== except,
    );
    for (const child of children) found.set(child.pid, child);
    grown = children.length > 0;
  }
  return [...found.values()];
}

export async function signalCarriers(belonging: Belonging, signal: NodeJS.Signals): Promise<number> {
  const carriers = selectCarriers(await readProcesses(), belonging);
  for (const carrier of carriers) await signalProcess(carrier, signal);
  return carriers.length;
}

/**
 * Kill until two looks in a row find nothing: a process that forks and exits while the table is read can
 * hide from one. False when something is still there after `within` milliseconds.
 */
export async function endCarriers(belonging: Belonging, within: number): Promise<boolean> {
  const until = performance.now() + within;
  for (let empty = 0, pause = 2; ; pause = Math.min(pause * 2, 200)) {
    empty = (await signalCarriers(belonging, "SIGKILL")) === 0 ? empty + 1 : 0;
    if (empty === 2) return true;
    if (performance.now() > until) return false;
    if (empty === 0) await delay(pause);
  }
}
