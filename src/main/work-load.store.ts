import { type Database, type Transaction, view } from "../core/postgres/transition.ts";
import { seconds } from "../core/time.ts";
import { liveStates } from "../work/work.ts";
import { readQuarantined, readWorkLanes, readWorkSize, readWorkStates, readWorkTrouble } from "./load.sql.ts";

/** Work over all tenants: counts alone, no tenant, no name, no payload. */
export interface WorkLoad {
  /** Live items by state: exact up to about fifteen thousand, then an estimate from a sample. */
  readonly items: ReadonlyMap<string, number>;
  /** 0 when nothing is due. */
  readonly oldestDueSeconds: number;
  /** Lanes with live items whose version no live process runs (W2). */
  readonly unattended: number;
  readonly circuitsOpen: number;
  readonly quarantined: ReadonlyMap<string, number>;
}

/** 4 MiB: as much of the live items as one reading looks at. */
const pagesMax = 512n;
const million = 1_000_000n;
/** What is counted one by one is counted up to here. */
const cap = 10_000n;
const lanesMax = 1_000n;
/** Longer than a live process is silent. */
const aliveWithin = seconds(60);

/** However much waits and however much is finished, a reading costs a bounded number of pages and probes. */
export function readWorkLoad(db: Database): Promise<WorkLoad> {
  return view(db, { role: "dispatcher", tenant: null, name: "readWorkLoad" }, async (tx) => {
    const parts = await workSample(tx);
    const states = await tx.run(readWorkStates, { parts });
    const lanes = await tx.run(readWorkLanes, { cap, within_us: aliveWithin, limit: lanesMax });
    const items = new Map(liveStates.map((state): [string, number] => [state, 0]));
    for (const row of states) items.set(row.state, estimate(row.items, parts));
    // A few among a million: counted, not estimated.
    items.set(
      "suspended",
      lanes.reduce((sum, lane) => sum + Number(lane.suspended), 0),
    );
    const { circuits } = await tx.run(readWorkTrouble, { cap });
    const quarantined = await tx.run(readQuarantined, { cap });
    return {
      items,
      oldestDueSeconds: Math.max(0, ...lanes.map((lane) => Number(lane.oldest_due_ms ?? 0n) / 1000)),
      unattended: lanes.filter((lane) => !lane.attended).length,
      circuitsOpen: Number(circuits),
      quarantined: new Map(quarantined.map(({ reason, results }) => [reason, Number(results)])),
    };
  });
}

/** How much of the live items a reading may look at: parts per million of their pages. */
export async function workSample(tx: Transaction): Promise<bigint> {
  const { pages } = await tx.run(readWorkSize, {});
  return pages <= pagesMax ? million : (pagesMax * million) / pages;
}

/** What a count of a part says of the whole. */
export const estimate = (count: bigint, parts: bigint): number => Number((count * million) / parts);
