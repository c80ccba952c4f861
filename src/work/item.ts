import { HoldfastError } from "../core/errors.ts";
import { isUuid } from "../core/ids.ts";
import { constraintOf } from "../core/postgres/sqlstate.ts";
import type { Instant, Microseconds } from "../core/time.ts";
import { queuePattern } from "./define.ts";
import { given, refuseUnknown } from "./known-names.ts";
import { durationMax, lastInstant } from "./plan.ts";
import type { Policy } from "./policy.ts";
import { type Place, refusal, storedBytes, tooLargeText } from "./value.ts";

/** What may be said of one item beside its input. */
export interface SubmitOptions {
  /** The command's id, and the item's: a UUID. Made when it is left out. */
  readonly id?: string;
  /** The same key again, with the same request, resolves to the same item. */
  readonly key?: string;
  /** D: no attempt begins, and no success counts, from then on. Never extended. Not for legacy work. */
  readonly deadline?: Instant;
  /** Eligible only after this pause. A plan counts from acceptance and takes none. */
  readonly delay?: Microseconds;
  readonly queue?: string;
  /** 0 is the most urgent; 2 when left out. */
  readonly priority?: 0 | 1 | 2 | 3;
  /** The effect's key at its provider, for `provider_keyed`; the item's id when left out. */
  readonly providerKey?: string;
  /** Items of one key share a circuit breaker, when their version has one. */
  readonly circuitKey?: string;
}

export interface SubmitItem<Input> extends SubmitOptions {
  readonly input: Input;
}

const optionNames = {
  id: true,
  key: true,
  deadline: true,
  delay: true,
  queue: true,
  priority: true,
  providerKey: true,
  circuitKey: true,
} as const satisfies Record<keyof SubmitOptions, true>;

export const submissionNames: ReadonlySet<string> = new Set([...Object.keys(optionNames), "tenant"]);
const itemNames: ReadonlySet<string> = new Set(["input", ...Object.keys(optionNames)]);

const keyPattern = /^[\x21-\x7e]{1,255}$/;

/** Of the call with one item the place is empty: what it says is said of its own arguments. */
export const placeOf = (place: number, alone: boolean): Place => (alone ? [] : ["items", place]);

export function checkItems(items: readonly unknown[]): void {
  if (!Array.isArray(items)) throw refusal(["items"], "is no array of { input, … }");
}

/** What is said of one item beside its input. The database holds the same by constraints, which name no place. */
export function checkItem(item: SubmitItem<unknown>, policy: Policy, at: Place): void {
  if (typeof item !== "object" || item === null) throw refusal(at, "is no item: { input, … }");
  refuseUnknown(item, itemNames, at);
  const { id, key, queue, priority, providerKey, circuitKey } = item;
  const wrong = (name: string, message: string) => refusal([...at, name], message);
  if (given(id) && !(typeof id === "string" && isUuid(id))) throw wrong("id", "is no UUID in lower case");
  if (given(key) && !(typeof key === "string" && keyPattern.test(key)))
    throw wrong("key", "is not 1 to 255 visible ASCII characters");
  if (given(queue) && !(typeof queue === "string" && queuePattern.test(queue)))
    throw wrong("queue", "is not 1 to 40 of a-z, 0-9 and inner _ -");
  if (given(priority) && !(Number.isInteger(priority) && priority >= 0 && priority <= 3))
    throw wrong("priority", "is none of 0, 1, 2, 3");
  if (given(providerKey) && !isText(providerKey, 255))
    throw wrong("providerKey", "is not 1 to 255 characters");
  if (given(circuitKey) && !isText(circuitKey, 128)) throw wrong("circuitKey", "is not 1 to 128 characters");
  checkTiming(item, policy, wrong);
}

function checkTiming(
  { deadline, delay }: SubmitOptions,
  { kind }: Policy,
  wrong: (name: string, message: string) => HoldfastError,
): void {
  if (given(deadline)) {
    if (kind === "legacy") throw wrong("deadline", "is given, and legacy work takes none");
    if (typeof deadline !== "bigint") throw wrong("deadline", "is no bigint of microseconds: use instant()");
    if (deadline < 0n || deadline > lastInstant)
      throw wrong("deadline", "does not lie between the years 1970 and 9999");
  } else if (kind === "deadline") throw wrong("deadline", "is missing, and this work needs one");
  if (!given(delay)) return;
  if (typeof delay !== "bigint") throw wrong("delay", "is no bigint of microseconds: use seconds()");
  if (delay < 0n || delay > durationMax) throw wrong("delay", "is not between none and a hundred years");
  if (delay > 0n && kind === "planned") throw wrong("delay", "is given, and a plan counts from acceptance");
}

function isText(value: unknown, longest: number): boolean {
  if (typeof value !== "string" || value === "" || value.includes("\0") || !value.isWellFormed())
    return false;
  // The database counts characters, of which some are two units long.
  return value.length <= longest || Array.from(value).length <= longest;
}

/** What passed the look at it can still be larger than the database lets it be, as that stores it. */
export function isTooLarge(error: unknown): boolean {
  return constraintOf(error instanceof HoldfastError ? error.cause : error) === "work_items_input";
}

/** Which of them was it that the database found too large? It says only that one was. */
export function namedTooLarge(items: readonly { readonly input: unknown }[], alone: boolean): HoldfastError {
  const sizes = items.map(({ input }) => storedBytes(input));
  const place = sizes.indexOf(Math.max(...sizes));
  return refusal([...placeOf(place, alone), "input"], tooLargeText);
}
