import { readProcesses } from "../../src/runtimes/process/process-table.ts";
import { until } from "./until.ts";

/** By the marks in their environment: supervisors and everything that they started. */
export async function assertNoProcessOf(uids: readonly string[]): Promise<void> {
  const marks = new Set(uids.flatMap((uid) => [`HOLDFAST_SANDBOX=${uid}`, `HOLDFAST_SUPERVISOR=${uid}`]));
  await until("no process of a sandbox is left", async () => {
    const all = await readProcesses();
    return !all.some((entry) => entry.marks.some((mark) => marks.has(mark)));
  });
}
