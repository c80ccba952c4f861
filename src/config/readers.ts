import { isIP } from "node:net";
import { resolve } from "node:path";
import { type Network, parseNetwork } from "../core/egress/address.ts";
import { type Microseconds, microseconds } from "../core/time.ts";
import { closeName } from "../wire/close-name.ts";
import { readDuration } from "../wire/duration.ts";

export { postgresUrl } from "./postgres-url.ts";

const dayMicroseconds = 86_400_000_000n;

export const anyText = (text: string): string => text;
export const present = (): true => true;
export const path = (text: string): string => resolve(text);

export function wholeNumber(minimum: number, maximum: number): (text: string) => number {
  return (text) => {
    const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= minimum && value <= maximum) return value;
    throw new Error(`must be a whole number from ${minimum} to ${maximum}, found ${shown(text)}`);
  };
}

/** 0 asks the system for a free port. */
export function port(text: string): number {
  if (/^[a-z]+:\/\//.test(text)) {
    throw new Error(
      "is the address that Kubernetes sets for a Service of that name; set `enableServiceLinks: false` on the pod",
    );
  }
  return wholeNumber(0, 65_535)(text);
}

export function host(text: string): string {
  if (isIP(text) !== 0 || /^[A-Za-z0-9]([A-Za-z0-9.-]{0,252})$/.test(text)) return text;
  throw new Error(`must be an address or a host name, found ${shown(text)}`);
}

export function oneOf<const Choice extends string>(...choices: readonly Choice[]): (text: string) => Choice {
  return (text) => {
    const choice = choices.find((one) => one === text);
    if (choice !== undefined) return choice;
    const close = closeName(text, choices);
    const hint = close === undefined ? "" : `; did you mean ${close}?`;
    throw new Error(`must be one of ${choices.join(", ")}, found ${shown(text)}${hint}`);
  };
}

/** As in a job file, and days before it: `30d`, `720h`. */
export function duration(text: string): Microseconds {
  const [, days, rest = ""] = /^(?:(\d{1,5})d)?(.*)$/s.exec(text) ?? [];
  const part = rest === "" && days !== undefined ? 0n : readDuration(rest);
  const whole = part === undefined ? undefined : BigInt(days ?? "0") * dayMicroseconds + part;
  if (whole !== undefined && whole > 0n) return microseconds(whole);
  throw new Error(`must be a duration such as 30d, 12h or 1h30m, found ${shown(text)}`);
}

export function durationFrom(minimum: string): (text: string) => Microseconds {
  const least = duration(minimum);
  return (text) => {
    const value = duration(text);
    if (value >= least) return value;
    throw new Error(`must be ${minimum} at least, found ${shown(text)}`);
  };
}

/** `late=30d,audit=365d`: a duration for each name. */
export function namedDurationsFrom(minimum: string): (text: string) => ReadonlyMap<string, Microseconds> {
  const read = durationFrom(minimum);
  return (text) => {
    const found = new Map<string, Microseconds>();
    for (const part of text.split(",")) {
      const [, name, value] = /^([^=,]{1,128})=([^=,]+)$/.exec(part.trim()) ?? [];
      if (name === undefined || value === undefined || found.has(name))
        throw new Error(`must be names with durations such as late=30d,audit=365d, found ${shown(part)}`);
      found.set(name, read(value));
    }
    return found;
  };
}

/** `0s`: none. */
export function durationUpTo(maximum: string): (text: string) => Microseconds {
  const most = duration(maximum);
  return (text) => {
    const value = text === "0s" ? microseconds(0n) : duration(text);
    if (value <= most) return value;
    throw new Error(`must be ${maximum} at most, found ${shown(text)}`);
  };
}

/** `3000/10s`: so many requests in so many seconds; `off`: no limit. */
export function rate(text: string): { readonly requests: number; readonly windowSeconds: number } | null {
  if (text === "off") return null;
  const [, requests, seconds] = /^([1-9]\d{0,6})\/([1-9]\d{0,4})s$/.exec(text) ?? [];
  if (requests !== undefined && seconds !== undefined) {
    return { requests: Number(requests), windowSeconds: Number(seconds) };
  }
  throw new Error(`must be requests in seconds, such as 3000/10s, or off, found ${shown(text)}`);
}

export function networks(text: string): readonly Network[] {
  return text.split(",").map((one) => parseNetwork(one.trim()));
}

export function claimName(text: string): string {
  if (/^[\x21-\x7e]{1,128}$/.test(text)) return text;
  throw new Error(`must be the name of a claim, found ${shown(text)}`);
}

/** Exactly as the tokens have it, also with or without a slash at its end. */
export function issuer(text: string): string {
  httpUrl(text);
  return text;
}

const byteUnits: Readonly<Record<string, number>> = { "": 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3 };

export function bytes(minimum: number, maximum: number): (text: string) => number {
  return (text) => {
    const [, digits, unit = ""] = /^(\d{1,12})(KiB|MiB|GiB|)$/.exec(text) ?? [];
    const value = Number(digits) * (byteUnits[unit] ?? Number.NaN);
    if (value >= minimum && value <= maximum) return value;
    throw new Error(
      `must be from ${minimum} to ${maximum} bytes, such as 1048576 or 1MiB, found ${shown(text)}`,
    );
  };
}

/** The same rule as the database's for the installation id. */
export function installation(text: string): string {
  if (/^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$/.test(text)) return text;
  throw new Error(`must be 1 to 40 lower-case letters, digits and inner hyphens, found ${shown(text)}`);
}

export function yesOrNo(text: string): boolean {
  return oneOf("true", "false")(text) === "true";
}

/** As every S3-compatible server takes it: it becomes part of a host name. */
export function bucketName(text: string): string {
  if (/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/.test(text)) return text;
  throw new Error(`must be 3 to 63 lower-case letters, digits, inner hyphens and dots, found ${shown(text)}`);
}

export function regionName(text: string): string {
  if (/^[A-Za-z0-9-]{1,64}$/.test(text)) return text;
  throw new Error(`must be letters, digits and hyphens, found ${shown(text)}`);
}

/** An origin, perhaps with a path. Credentials in it would end up in logs, so they are refused unshown. */
export function httpUrl(text: string): string {
  const url = URL.parse(text);
  if (url === null || !["http:", "https:"].includes(url.protocol)) {
    throw new Error("must be an http:// or https:// URL");
  }
  if (url.username !== "" || url.password !== "") throw new Error("must not contain a user or password");
  if (url.search !== "" || url.hash !== "") throw new Error("must not contain a query or fragment");
  return url.href.replace(/\/$/, "");
}

export function token(text: string): string {
  if (/^[\x21-\x7e]{1,4096}$/.test(text)) return text;
  throw new Error("must be 1 to 4096 visible ASCII characters");
}

function shown(text: string): string {
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text);
}
