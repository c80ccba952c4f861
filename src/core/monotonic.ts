/**
 * Milliseconds on the machine's monotonic clock, the same in every thread of the process and going on while
 * the process is stopped. For measuring on this side only: what is eligible, the database's clock says.
 */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint() / 1000n) / 1000;
}

/** An instant of that clock which threads share: one writes it, others read it, and never half of it. */
export type SharedInstant = BigInt64Array<SharedArrayBuffer>;

export function sharedInstant(ms: number): SharedInstant {
  const cell = new BigInt64Array(new SharedArrayBuffer(BigInt64Array.BYTES_PER_ELEMENT));
  setShared(cell, ms);
  return cell;
}

export function setShared(cell: SharedInstant, ms: number): void {
  Atomics.store(cell, 0, BigInt(Math.floor(ms * 1_000)));
}

export function getShared(cell: SharedInstant): number {
  return Number(Atomics.load(cell, 0)) / 1_000;
}
