import { HoldfastError } from "../core/errors.ts";
import { closeName } from "../wire/close-name.ts";
import { nameOf, type Place } from "./value.ts";

/** What other libraries call it. */
const elsewhere: Readonly<Record<string, string>> = {
  idempotencykey: "key",
  jobid: "id",
  uniquekey: "key",
  notafter: "deadline",
  expiresat: "deadline",
};

/**
 * Refuses, as `invalid_request`, a member that means nothing: a mistyped one would be left out without a word, and
 * what it asked for with it.
 */
export function refuseUnknown(given: object, known: ReadonlySet<string>, at: Place): void {
  if (typeof given !== "object" || given === null) throw missing(known, at);
  for (const name of Object.keys(given)) if (!known.has(name)) throw unknown(name, [...known], at);
}

/** A program without types may say null for what it leaves out. */
export function given<T>(value: T): value is NonNullable<T> {
  return value !== undefined && value !== null;
}

function missing(known: ReadonlySet<string>, at: Place): HoldfastError {
  const what = at.length === 0 ? "what is given" : nameOf(at);
  return new HoldfastError("invalid_request", `${what} is no object; it may have ${[...known].join(", ")}`);
}

function unknown(name: string, known: readonly string[], at: Place): HoldfastError {
  const plain = name.toLowerCase().replaceAll(/[-_]/g, "");
  const near = known.find((one) => one === elsewhere[plain]) ?? closeName(name, known);
  const hint = near === undefined ? `known are ${known.join(", ")}` : `did you mean \`${near}\`?`;
  return new HoldfastError("invalid_request", `${nameOf([...at, name])} means nothing here; ${hint}`);
}
