/**
 * Until when each lease of a block is held, in microseconds of the monotonic clock, in memory that the main thread
 * and the keeper's share: a lease that is finished is dropped without a message. The first cell counts those that are
 * not over, the others are the leases in order.
 */
export type HeldInstants = BigInt64Array<SharedArrayBuffer>;

const over = -1n;

/** Null is one that is over. */
export function heldInstants(ms: readonly (number | null)[]): HeldInstants {
  const cells = new BigInt64Array(new SharedArrayBuffer((1 + ms.length) * BigInt64Array.BYTES_PER_ELEMENT));
  cells[0] = BigInt(ms.filter((at) => at !== null).length);
  for (const [place, at] of ms.entries()) cells[1 + place] = at === null ? over : micros(at);
  return cells;
}

/** How many are not over. */
export function heldCount(cells: HeldInstants): number {
  return Number(Atomics.load(cells, 0));
}

/** In milliseconds; below 0 when it is over. */
export function heldUntil(cells: HeldInstants, place: number): number {
  return Number(Atomics.load(cells, 1 + place)) / 1_000;
}

/** One that is over meanwhile stays so. */
export function setHeld(cells: HeldInstants, place: number, ms: number): void {
  const before = Atomics.load(cells, 1 + place);
  if (before !== over) Atomics.compareExchange(cells, 1 + place, before, micros(ms));
}

/** It is over: dropped or lost. */
export function endHeld(cells: HeldInstants, place: number): void {
  if (Atomics.exchange(cells, 1 + place, over) !== over) Atomics.sub(cells, 0, 1n);
}

const micros = (ms: number) => BigInt(Math.floor(ms * 1_000));
