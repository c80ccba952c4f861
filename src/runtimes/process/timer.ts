/** Longer than a JavaScript timer can be is waited for in parts. */
const partMilliseconds = 1_000_000_000;

/** One timer on the monotonic clock, for limits of any length. */
export class Timer {
  #handle: NodeJS.Timeout | null = null;

  set(milliseconds: number, act: () => void): void {
    this.clear();
    const part = Math.min(milliseconds, partMilliseconds);
    this.#handle = setTimeout(() => {
      if (milliseconds > part) this.set(milliseconds - part, act);
      else act();
    }, part);
  }

  clear(): void {
    if (this.#handle !== null) clearTimeout(this.#handle);
    this.#handle = null;
  }
}
