import type { IncarnationId } from "../core/ids.ts";
import type { Database } from "../core/postgres/transition.ts";
import { type Claimed, type Done, readPermit, readTaken, type Take } from "./turn.store.ts";

/** A turn that was refused, in two parts; what it settles is told apart from what it asks for first. */
export function halves<Settled, Next>(
  settle: readonly Settled[],
  next: readonly Next[],
): readonly (readonly [readonly Settled[], readonly Next[]])[] {
  if (settle.length > 0 && next.length > 0)
    return [
      [settle, []],
      [[], next],
    ];
  const [settled, asked] = [Math.ceil(settle.length / 2), Math.ceil(next.length / 2)];
  return [
    [settle.slice(0, settled), next.slice(0, asked)],
    [settle.slice(settled), next.slice(asked)],
  ];
}

/** Of a turn whose answer was lost, what is not known yet. */
export interface LostTurn {
  next: Claimed[];
  take: Take | null;
}

/**
 * Finds out what has become of it, and takes from `lost` what is known: after an error the same again goes on. Permits
 * that nobody has used are to be given back, since asking for them again would be refused; what got none is still
 * claimed. `permits` are those that are known or asked for; `taking` are other turns that take from the same lines.
 */
export async function readLost(
  db: Database,
  holder: IncarnationId,
  lost: LostTurn,
  beside: {
    readonly permits: Set<bigint>;
    readonly taking: ReadonlySet<Promise<unknown>>;
    readonly unused: (item: Done["item"]) => void;
    readonly stillClaimed: (item: Claimed) => void;
  },
): Promise<void> {
  const { permits, taking } = beside;
  if (lost.take !== null) {
    // What another one takes meanwhile stands in the same lines, and is its own.
    await Promise.allSettled(taking);
    for (const item of await readTaken(db, holder, lost.take, [...permits])) {
      // Asked for while this was read.
      if (permits.has(item.epoch)) continue;
      permits.add(item.epoch);
      beside.unused(item);
    }
    lost.take = null;
  }
  for (let [item] = lost.next; item !== undefined; [item] = lost.next) {
    const row = await readPermit(db, item);
    lost.next.shift();
    const mine = row?.epoch === item.epoch && row.holder === holder;
    if (mine && row.work_state === "permitted") {
      beside.unused({ ...item, attempt: row.attempt ?? 1, circuitKey: null });
      continue;
    }
    permits.delete(item.epoch);
    if (mine && row.work_state === "leased") beside.stillClaimed(item);
  }
}
