import { createHash } from "node:crypto";
import { isIPv6 } from "node:net";
import { HoldfastError } from "../core/errors.ts";
import { type RatePolicy, rateLimiter } from "./rate-limit.ts";

/** Bounds how many credentials that are not good one address may show to this process. */
export interface FailedLogins {
  /** Before anybody is asked. Throws `too_many_requests` when too many from there were not good. */
  admit(address: string, shown: string): void;
  /** It is good: from now on it is let in, whatever else comes from its address, which others may share. */
  proven(shown: string): void;
  /** It was not good, or is so no longer. */
  failed(address: string, shown: string): void;
  /** Addresses and credentials that are remembered at the moment. */
  readonly kept: number;
}

/** At most `keysMax` addresses and as many credentials are remembered, the latter by their digest alone. */
export function failedLogins(policy: RatePolicy, keysMax: number, now?: () => number): FailedLogins {
  const failures = rateLimiter(policy, keysMax, now);
  const good = new Set<string>();
  return {
    admit(address, shown) {
      const { allowed, retryAfterSeconds } = failures.look(networkOf(address));
      if (allowed || good.has(digestOf(shown))) return;
      throw new HoldfastError("too_many_requests", "too many credentials from this address were not good", {
        retryAfterSeconds,
      });
    },
    proven(shown) {
      const digest = digestOf(shown);
      // Put in anew, so that what was used least recently goes first.
      good.delete(digest);
      good.add(digest);
      const [oldest] = good;
      if (good.size > keysMax && oldest !== undefined) good.delete(oldest);
    },
    failed(address, shown) {
      failures.take(networkOf(address));
      good.delete(digestOf(shown));
    },
    get kept() {
      return failures.kept + good.size;
    },
  };
}

const digestOf = (shown: string): string => createHash("sha256").update(shown).digest("base64");

/** Whoever has an IPv6 address has 2⁶⁴ of them: they count as one. */
function networkOf(address: string): string {
  if (!isIPv6(address) || address.startsWith("::ffff:")) return address;
  const [head = "", tail = ""] = address.split("::");
  const groups = [head, tail].map((part) => part.split(":").filter((group) => group !== ""));
  const [before = [], after = []] = groups;
  const zeros = Array.from({ length: Math.max(0, 8 - before.length - after.length) }, () => "0");
  return [...before, ...zeros, ...after].slice(0, 4).join(":");
}
