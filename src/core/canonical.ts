import { createHash } from "node:crypto";
import canonicalize from "canonicalize";

/** SHA-256, lower-case hex, of the value's canonical JSON (RFC 8785): equal exactly for equal JSON values. */
export function canonicalDigest(value: unknown): string {
  return createHash("sha256").update(canonicalJson(value)).digest("hex");
}

/**
 * Canonical JSON (RFC 8785). Refuses what JSON can't carry without loss: integers beyond 2^53, NaN,
 * infinities, lone surrogates.
 */
export function canonicalJson(value: unknown): string {
  refuseLoss(value);
  return canonicalText(value);
}

/** The same of a value that is known to be carried without loss: a second look at it costs as much as a sixth of this. */
export function canonicalText(value: unknown): string {
  const text = canonicalize(value);
  if (text === undefined) throw new TypeError("not a JSON value");
  return text;
}

function refuseLoss(value: unknown): void {
  if (typeof value === "number" && !(Number.isFinite(value) && Math.abs(value) <= Number.MAX_SAFE_INTEGER)) {
    throw new RangeError(`the number ${value} can't be carried by JSON without loss`);
  }
  if (typeof value === "string" && !value.isWellFormed())
    throw new RangeError("a string has a lone surrogate");
  if (typeof value === "object" && value !== null) {
    for (const [key, member] of Object.entries(value)) {
      if (!key.isWellFormed()) throw new RangeError("a member's name has a lone surrogate");
      refuseLoss(member);
    }
  }
}
