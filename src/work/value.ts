import { HoldfastError } from "../core/errors.ts";

/** Where something stands in what a program gave: `["items", 2, "input", "amount"]`. */
export type Place = readonly (string | number)[];

/** What the database lets one input or result have, as it stores JSON. */
export const valueBytesMax = 262_144;
/** Far more than anybody nests, and far less than makes a parser give up. */
const depthMax = 1_000;
/** What the database adds to each value and each name, at least. */
const entryBytes = 4;

/**
 * What will be kept of an input or a result: the value itself, or what its `toJSON` make of it. Refuses, as
 * `invalid_request` with the place, whatever JSON would change without a word, and whatever the database can't hold.
 * The one thing that is left out silently is a property that is undefined.
 */
export function kept(value: unknown, at: Place): unknown {
  const look: Look = { bytes: 2 * entryBytes, turned: false };
  let fault: Fault | undefined;
  try {
    fault = faultOf(value, look, 0);
  } catch (cause) {
    throw refusal(at, "can't be read: something in it throws", cause);
  }
  if (fault === undefined && look.bytes > valueBytesMax) fault = tooLarge();
  if (fault !== undefined) throw told(value, at, fault);
  return look.turned ? (JSON.parse(JSON.stringify(value)) as unknown) : value;
}

export const tooLargeText =
  "is larger than the 256 KiB that are kept: keep it elsewhere, and give its address";

export function refusal(at: Place, message: string, cause?: unknown): HoldfastError {
  const fields = [{ pointer: pointerTo(at), message }];
  return new HoldfastError("invalid_request", `${nameOf(at)} ${message}`, {
    fields,
    ...(cause === undefined ? {} : { cause }),
  });
}

/** About what the database needs for it: to tell which of several is the large one. */
export function storedBytes(value: unknown): number {
  if (typeof value === "string") return entryBytes + Buffer.byteLength(value);
  if (typeof value === "number") return 4 * entryBytes;
  if (typeof value !== "object" || value === null) return entryBytes;
  return Object.entries(value).reduce(
    (sum, [name, member]) => sum + (Array.isArray(value) ? 0 : storedBytes(name)) + storedBytes(member),
    2 * entryBytes,
  );
}

/** What one look has found so far. */
interface Look {
  /** What the database needs, at least. */
  bytes: number;
  /** Something stands for itself by `toJSON`. */
  turned: boolean;
}

interface Fault {
  readonly message: string;
  /** From the inside to the outside. */
  readonly path: (string | number)[];
  readonly kind?: "deep" | "large";
}

function faultOf(value: unknown, look: Look, depth: number): Fault | undefined {
  look.bytes += entryBytes;
  switch (typeof value) {
    case "string":
      look.bytes += value.length;
      return textFault(value);
    case "number":
      if (Math.abs(value) <= Number.MAX_SAFE_INTEGER) return undefined;
      return Number.isFinite(value)
        ? here("is beyond 2^53, where readers of JSON round: give it as text")
        : here(`is ${value}, which JSON does not have: give null or a text`);
    case "boolean":
      return undefined;
    case "object":
      return value === null ? undefined : objectFault(value, look, depth);
    case "bigint":
      return turns(value) ? turnedFault(value, look, depth) : here("is a bigint: give it as text");
    case "undefined":
      return here("is undefined, which JSON does not have: give null");
    case "function":
    case "symbol":
      return here(`is a ${typeof value}, which JSON does not have: leave it out`);
  }
}

function textFault(text: string): Fault | undefined {
  if (text.includes("\0"))
    return here("has the character NUL, which the database can't keep: remove it, or give it as base64");
  if (!text.isWellFormed())
    return here("has half of a surrogate pair: cut text between characters, or use toWellFormed()");
  return undefined;
}

function objectFault(value: object, look: Look, depth: number): Fault | undefined {
  if (depth === depthMax)
    return { message: `is nested deeper than ${depthMax} levels`, path: [], kind: "deep" };
  if (look.bytes > valueBytesMax) return tooLarge();
  if (turns(value)) return turnedFault(value, look, depth);
  if (Array.isArray(value)) {
    for (let place = 0; place < value.length; place += 1) {
      const fault = faultOf(value[place], look, depth + 1);
      if (fault !== undefined) return inside(fault, place);
    }
    return undefined;
  }
  const members = value as Readonly<Record<string, unknown>>;
  const names = Object.keys(members);
  if (!isPlain(value)) {
    const lost = lostBy(value, names.length);
    if (lost !== undefined) return here(lost);
  }
  for (const name of names) {
    const member = members[name];
    if (member === undefined) continue;
    look.bytes += entryBytes + name.length;
    const fault = textFault(name);
    if (fault !== undefined) return { ...fault, message: `has a name that ${fault.message}` };
    const within = faultOf(member, look, depth + 1);
    if (within !== undefined) return inside(within, name);
  }
  return undefined;
}

interface Turning {
  readonly toJSON: () => unknown;
}

function turns(value: object | bigint): value is (object | bigint) & Turning {
  // Some programs give all bigints one.
  return typeof (value as Partial<Turning>).toJSON === "function";
}

/** Once, as JSON does: what it gives is not asked again. */
function turnedFault(value: (object | bigint) & Turning, look: Look, depth: number): Fault | undefined {
  // It would be kept as a list of numbers, which nobody makes a Buffer of again.
  if (Buffer.isBuffer(value)) return here("is a Buffer: give its bytes as base64");
  look.turned = true;
  const given = value.toJSON();
  if (given === null && tagOf(value) === "Date") return here("is a Date that is no time: give null");
  if (typeof given === "object" && given !== null && turns(given))
    return here("has a toJSON that gives something which has one itself: let it give plain values");
  return faultOf(given, look, depth + 1);
}

const tagOf = (value: unknown) => Object.prototype.toString.call(value).slice(8, -1);

/** Also of another realm, such as the sandbox of a test runner: only the root of all objects has no prototype. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** Of an object of a class JSON keeps the members that are its own. What it loses by that; undefined when nothing. */
function lostBy(value: object, members: number): string | undefined {
  const tag = tagOf(value);
  if (tag === "Map")
    return "is a Map, of which JSON keeps nothing: give Object.fromEntries(map), or its entries";
  if (tag === "Set") return "is a Set, of which JSON keeps nothing: give [...set]";
  if (ArrayBuffer.isView(value) || tag.endsWith("ArrayBuffer"))
    return `is ${withArticle(tag)}: give its bytes as base64`;
  if (tag !== "Object")
    return `is ${withArticle(tag)}, which JSON does not keep as it is: give what of it is wanted`;
  if (members > 0) return undefined;
  return "is of a class and has no members of its own for JSON to keep: give plain values, or the class a toJSON";
}

const withArticle = (tag: string) => `${/^(?:[AEIO]|Un)/.test(tag) ? "an" : "a"} ${tag}`;
const here = (message: string): Fault => ({ message, path: [] });
const tooLarge = (): Fault => ({ message: tooLargeText, path: [], kind: "large" });

function inside(fault: Fault, step: string | number): Fault {
  fault.path.push(step);
  return fault;
}

function told(value: unknown, at: Place, { message, path, kind }: Fault): HoldfastError {
  const steps = path.toReversed();
  // Where it was too much says nothing: it is all of it.
  if (kind === "large") return refusal(at, message);
  if (kind !== "deep") return refusal([...at, ...steps], message);
  const ring = ringOn(value, steps);
  return ring === undefined
    ? refusal(at, message)
    : refusal(
        [...at, ...steps.slice(0, ring.to)],
        `leads back to ${nameOf([...at, ...steps.slice(0, ring.from)])}: give it once`,
      );
}

/** Where the path comes to an object that it has been at before. */
function ringOn(value: unknown, steps: Place): { readonly from: number; readonly to: number } | undefined {
  const been = new Map<unknown, number>();
  let at = value;
  for (const [place, step] of [...steps, ""].entries()) {
    const from = been.get(at);
    if (from !== undefined) return { from, to: place };
    been.set(at, place);
    if (typeof at !== "object" || at === null) return undefined;
    at = (at as Readonly<Record<string, unknown>>)[step];
  }
  return undefined;
}

/** As a program would write it: `items[2].input.amount`. */
export function nameOf(at: Place): string {
  let name = "";
  for (const step of at) {
    if (typeof step === "number") name += `[${step}]`;
    else if (!/^[\p{L}_$][\p{L}\p{N}_$]*$/u.test(step))
      name += `[${JSON.stringify(step.slice(0, 64).toWellFormed())}]`;
    else name += name === "" ? step : `.${step}`;
  }
  return name;
}

/** RFC 6901. */
export function pointerTo(at: Place): string {
  return at
    .map((step) => `/${String(step).toWellFormed().replaceAll("~", "~0").replaceAll("/", "~1")}`)
    .join("");
}
