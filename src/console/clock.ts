import { signal } from "@preact/signals";

/** Milliseconds by which the server's clock is ahead of this machine's. Times are the server's. */
let ahead = 0;

/** The server's time, as well as it is known; moves once a second. */
export const now = signal(Date.now());

export const serverNow = (): number => Date.now() + ahead;

/** `Date` headers have whole seconds: a difference below two is none. */
export function learnClock(date: string | null): void {
  const seen = date === null ? Number.NaN : Date.parse(date);
  if (Number.isNaN(seen)) return;
  const difference = seen + 500 - Date.now();
  ahead = Math.abs(difference) < 2_000 ? 0 : difference;
}

export function startClock(): void {
  setInterval(() => {
    if (!document.hidden) now.value = serverNow();
  }, 1_000);
}
