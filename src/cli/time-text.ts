/** Times for people. Instants are the server's RFC 3339 texts. */

/** One unit is enough to see how old a thing is: `5s`, `3m`, `2h`, `4d`. */
export function age(since: string, now: number): string {
  const seconds = Math.max(0, Math.floor((now - Date.parse(since)) / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  return seconds < 172_800 ? `${Math.floor(seconds / 3600)}h` : `${Math.floor(seconds / 86_400)}d`;
}

/** `0.4s`, `12s`, `1m20s`, `2h05m`. */
export function elapsed(milliseconds: number): string {
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)}s`;
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole}s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}m${two(whole % 60)}s`;
  return `${Math.floor(minutes / 60)}h${two(minutes % 60)}m`;
}

export function between(from: string, to: string): string {
  return elapsed(Date.parse(to) - Date.parse(from));
}

/** To the second, in UTC, as the server keeps it. */
export function instantText(at: string): string {
  return `${at.slice(0, 10)} ${at.slice(11, 19)}Z`;
}

const two = (value: number): string => String(value).padStart(2, "0");
