import { HoldfastError, isHoldfastError } from "../core/errors.ts";

/**
 * Reads a request body so that it means the same to everybody: UTF-8 or nothing, no name twice in an object,
 * no integer that a double can't hold, no text that PostgreSQL can't store. What is refused is named by place
 * (G11). `JSON.parse` replaces, rounds and overwrites instead.
 */
export function readJson(
  bytes: Uint8Array,
  /** `what` the bytes are, such as `the body`, where only their number can say which is meant. */
  { depth, what }: { readonly depth: number; readonly what?: string },
): unknown {
  return new Reader(decode(bytes, depth, what), depth).read();
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function decode(bytes: Uint8Array, depth: number, what: string | undefined): string {
  try {
    return decoder.decode(bytes);
  } catch {
    const sound = soundBytes(bytes);
    throw new Reader(decoder.decode(bytes.subarray(0, sound)), depth).faultAtEnd(
      `byte ${sound + 1}${what === undefined ? "" : ` of ${what}`} is not valid UTF-8`,
    );
  }
}

/** How many bytes come before the first that is not UTF-8: all of them when there is none. */
export function soundBytes(bytes: Uint8Array): number {
  if (isWhole(bytes)) return bytes.length;
  let [from, to] = [0, bytes.length];
  // All before `from` is sound, and something before `to` isn't. A character cut off in its middle is no fault.
  while (to - from > 1) {
    const middle = (from + to) >> 1;
    if (isSound(bytes.subarray(0, middle))) from = middle;
    else to = middle;
  }
  // Back to the beginning of the character that the fault is in.
  while (from > 0 && !isWhole(bytes.subarray(0, from))) from -= 1;
  return from;
}

function isSound(bytes: Uint8Array): boolean {
  try {
    new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes, { stream: true });
    return true;
  } catch {
    return false;
  }
}

function isWhole(bytes: Uint8Array): boolean {
  try {
    decoder.decode(bytes);
    return true;
  } catch {
    return false;
  }
}

// JSON.parse reads one number or one string that is already known to be well-formed.
const numberPattern = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
// oxlint-disable-next-line no-control-regex -- JSON forbids exactly these in strings
const plainText = /[^"\\\u0000-\u001f]*/y;
const escapeSequence = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
const blank = /[ \t\n\r]*/y;

class Reader {
  readonly #text: string;
  readonly #depthMax: number;
  readonly #path: (string | number)[] = [];
  #at = 0;

  constructor(text: string, depthMax: number) {
    this.#text = text;
    this.#depthMax = depthMax;
  }

  read(): unknown {
    const value = this.#value();
    this.#skipBlank();
    if (this.#at < this.#text.length) throw this.#fault("there is something after the value");
    return value;
  }

  /** For a text that breaks off: the fault is where it ends, unless there is one before. */
  faultAtEnd(message: string): HoldfastError {
    try {
      this.#value();
    } catch (error) {
      if (!isHoldfastError(error)) throw error;
      if (this.#at < this.#text.length) return error;
    }
    this.#at = this.#text.length;
    return this.#fault(message);
  }

  #value(): unknown {
    this.#skipBlank();
    switch (this.#text[this.#at]) {
      case "{":
        return this.#object();
      case "[":
        return this.#array();
      case '"':
        return this.#string();
      case "t":
        return this.#word("true", true);
      case "f":
        return this.#word("false", false);
      case "n":
        return this.#word("null", null);
      case undefined:
        throw this.#fault("the value is missing");
      default:
        return this.#number();
    }
  }

  #object(): unknown {
    this.#enter();
    const object: Record<string, unknown> = {};
    if (this.#closes("}")) return object;
    for (;;) {
      this.#skipBlank();
      const start = this.#at;
      if (this.#text[start] !== '"') throw this.#fault("a member's name in quotes is missing");
      const name = this.#string();
      this.#path.push(name);
      if (Object.hasOwn(object, name)) throw this.#fault("this name stands twice in the object", start);
      this.#skipBlank();
      if (this.#text[this.#at] !== ":") throw this.#fault("a colon is missing");
      this.#at += 1;
      // An own property also for `__proto__`, which an assignment would take for the prototype.
      Object.defineProperty(object, name, {
        value: this.#value(),
        enumerable: true,
        writable: true,
        configurable: true,
      });
      this.#path.pop();
      if (this.#ends("}")) return object;
    }
  }

  #array(): unknown[] {
    this.#enter();
    const array: unknown[] = [];
    if (this.#closes("]")) return array;
    for (;;) {
      this.#path.push(array.length);
      array.push(this.#value());
      this.#path.pop();
      if (this.#ends("]")) return array;
    }
  }

  #enter(): void {
    if (this.#path.length >= this.#depthMax) throw this.#fault(`at most ${this.#depthMax} levels`);
    this.#at += 1;
  }

  /** Whether the container ends right after its opening. */
  #closes(end: string): boolean {
    this.#skipBlank();
    if (this.#text[this.#at] !== end) return false;
    this.#at += 1;
    return true;
  }

  /** Whether the container ends after an item; otherwise a comma is taken. */
  #ends(end: string): boolean {
    this.#skipBlank();
    const found = this.#text[this.#at];
    if (found !== end && found !== ",") throw this.#fault(`a comma or ${end} is missing`);
    this.#at += 1;
    return found === end;
  }

  #string(): string {
    const start = this.#at;
    this.#at += 1;
    for (;;) {
      this.#match(plainText);
      const found = this.#text[this.#at];
      if (found === '"') break;
      if (found !== "\\") {
        throw this.#fault(found === undefined ? "the closing quote is missing" : "a control character");
      }
      if (this.#match(escapeSequence) === undefined) throw this.#fault("this escape doesn't exist");
    }
    this.#at += 1;
    const text = JSON.parse(this.#text.slice(start, this.#at)) as string;
    if (text.includes("\0")) throw this.#fault("NUL can't be stored", start);
    if (!text.isWellFormed()) throw this.#fault("half of a surrogate pair is not Unicode", start);
    return text;
  }

  #number(): number {
    const start = this.#at;
    const found = this.#match(numberPattern);
    if (found === undefined) throw this.#fault("this is not a JSON value");
    const value = Number(found);
    if (!Number.isFinite(value) || (Number.isInteger(value) && !Number.isSafeInteger(value))) {
      throw this.#fault("the number is larger than 2^53 - 1 and would be rounded", start);
    }
    return value;
  }

  #word<T>(word: string, value: T): T {
    if (!this.#text.startsWith(word, this.#at)) throw this.#fault("this is not a JSON value");
    this.#at += word.length;
    return value;
  }

  #skipBlank(): void {
    this.#match(blank);
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const [found] = pattern.exec(this.#text) ?? [];
    if (found !== undefined) this.#at += found.length;
    return found;
  }

  #fault(message: string, at = this.#at): HoldfastError {
    const before = this.#text.slice(0, at);
    const line = before.split("\n").length;
    const column = at - before.lastIndexOf("\n");
    const pointer = this.#path
      .map((step) => `/${String(step).replaceAll("~", "~0").replaceAll("/", "~1")}`)
      .join("");
    return new HoldfastError("invalid_json", `line ${line}, column ${column}: ${message}`, {
      fields: [{ pointer, message, line, column }],
    });
  }
}
