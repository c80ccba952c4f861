/** Times and sizes for people. Instants are the server's RFC 3339 texts. */

const units = [
  { seconds: 86_400, name: "d" },
  { seconds: 3_600, name: "h" },
  { seconds: 60, name: "min" },
] as const;

/** `12 s ago`, `3 min ago`, `in 2 h`. */
export function relative(at: string, now: number): string {
  const seconds = Math.round((now - Date.parse(at)) / 1_000);
  const amount = amountOf(Math.abs(seconds));
  if (Math.abs(seconds) < 2) return "now";
  return seconds > 0 ? `${amount} ago` : `in ${amount}`;
}

/** The largest unit of which there are at least two, or one: `90 s`, `12 min`, `36 h`. */
function amountOf(seconds: number): string {
  const unit = units.find((one) => seconds >= 2 * one.seconds);
  return unit === undefined ? `${seconds} s` : `${Math.floor(seconds / unit.seconds)} ${unit.name}`;
}

/** `0.4 s`, `12 s`, `1 min 20 s`, `2 h 05 min`. */
export function lasting(milliseconds: number): string {
  const seconds = Math.max(0, milliseconds) / 1_000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${two(whole % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
}

export function between(from: string, until: string | null, now: number): string {
  return lasting((until === null ? now : Date.parse(until)) - Date.parse(from));
}

/** To the microsecond, in UTC, as the server keeps it; and where the reader is. */
export function exact(at: string): string {
  return `${at.replace("T", " ").replace("Z", " UTC")}\n${new Date(at).toLocaleString()}`;
}

export function clockTime(at: string): string {
  return new Date(at).toLocaleTimeString(undefined, { hour12: false });
}

const two = (value: number): string => String(value).padStart(2, "0");

export function bytes(count: number): string {
  if (count < 1_024) return `${count} B`;
  const names = ["KiB", "MiB", "GiB", "TiB"];
  let value = count / 1_024;
  let index = 0;
  while (value >= 1_024 && index < names.length - 1) {
    value /= 1_024;
    index += 1;
  }
  return `${value.toFixed(value < 10 ? 1 : 0)} ${names[index] ?? ""}`;
}

export const count = (value: number): string => value.toLocaleString("en");

/** `1 job`, `2 jobs`. */
export const counted = (value: number, one: string, many = `${one}s`): string =>
  `${count(value)} ${value === 1 ? one : many}`;

/** The last part of a time-ordered id tells it from its neighbours. */
export const shortId = (id: string): string => `…${id.slice(-12)}`;
