import { readDuration } from "../wire/duration.ts";
import type { Branded } from "./ids.ts";

/** A point in time: whole microseconds since 1970-01-01T00:00:00Z, as PostgreSQL's timestamptz keeps it. */
export type Instant = Branded<bigint, "Instant">;
/** A length of time: whole microseconds. */
export type Microseconds = Branded<bigint, "Microseconds">;

export const instant = (microseconds: bigint): Instant => microseconds as Instant;
export const microseconds = (value: bigint): Microseconds => value as Microseconds;

/** Whole microseconds of so many seconds. Finer ones are refused with a `RangeError`, never rounded (W10). */
export function seconds(value: number): Microseconds {
  const whole = Math.trunc(value);
  const fraction = (value - whole) * 1_000_000;
  const rest = Math.round(fraction);
  // What a binary fraction makes of six decimal digits, or of a sum of some, is off by no more than this.
  const off = 4 * Number.EPSILON * Math.max(1, Math.abs(value)) * 1_000_000;
  if (!Number.isFinite(value) || Math.abs(fraction - rest) > off)
    throw new RangeError(`not a whole number of microseconds: ${value} s`);
  return microseconds(BigInt(whole) * 1_000_000n + BigInt(rest));
}

/** Whole milliseconds, rounded up, so that a timer never fires before the instant it stands for. */
export function toMilliseconds(duration: bigint): number {
  return duration <= 0n ? 0 : Number((duration + 999n) / 1000n);
}

/** RFC 3339 in UTC with six digits of fraction, for the wire. */
export function formatInstant(at: Instant): string {
  const fraction = ((at % 1_000_000n) + 1_000_000n) % 1_000_000n;
  const whole = Number((at - fraction) / 1_000_000n);
  return `${new Date(whole * 1000).toISOString().slice(0, 19)}.${String(fraction).padStart(6, "0")}Z`;
}

/**
 * Read what PostgreSQL prints for a timestamptz under `TimeZone=UTC` and `DateStyle=ISO`, without passing
 * through a floating-point number. `infinity` is no instant and is refused.
 */
export function parseInstant(text: string): Instant {
  const match = /^(\d{4,6})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:\+00(?::?00)?|Z)$/.exec(
    text,
  );
  if (match === null) throw new RangeError(`not a UTC timestamp: ${text}`);
  const [, year, month, day, hour, minute, second, fraction = ""] = match;
  const whole = Date.UTC(0, Number(month) - 1, Number(day), Number(hour), Number(minute), Number(second));
  const date = new Date(whole);
  date.setUTCFullYear(Number(year), Number(month) - 1, Number(day));
  return instant(BigInt(date.getTime()) * 1000n + BigInt(fraction.padEnd(6, "0")));
}

/** Read a duration as people write one: `90s`, `10m`, `1h30m`. Units h, m, s, ms, us, each at most once, in order. */
export function parseDuration(text: string): Microseconds | undefined {
  const read = readDuration(text);
  return read === undefined ? undefined : microseconds(read);
}
