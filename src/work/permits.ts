/** So many are remembered of those that were left to their leases; the oldest have ended long ago. */
const leftMax = 10_000;

/**
 * The epochs of all open permits that an engine knows of or has asked for: no two have the same. Whatever else its holder
 * has a permit for, is of a turn whose answer was lost, and was never used.
 */
export class Permits extends Set<bigint> {
  readonly #left = new Set<bigint>();

  /** It has been used, and is left to its lease: known until whoever recovers it has said so, or for a long time. */
  leave(epoch: bigint): void {
    this.#left.add(epoch);
    const [oldest] = this.#left;
    if (this.#left.size > leftMax && oldest !== undefined) this.delete(oldest);
  }

  override delete(epoch: bigint): boolean {
    this.#left.delete(epoch);
    return super.delete(epoch);
  }
}
