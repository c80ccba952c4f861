/** A piece of a line of a container's log: whole, or up to `pieceBytesMax` of a long one. */
export interface LogPiece {
  /** Nanoseconds since 1970: when the line was completed. */
  readonly at: bigint;
  /** The whole second of `at`. */
  readonly second: bigint;
  readonly bytes: Uint8Array;
  /** Which piece of its line it is, and whether it is the last. */
  readonly piece: number;
  readonly last: boolean;
}

export type LogLine =
  | LogPiece
  /** Without a time in front: the server's own words instead of a log. */
  | { readonly words: string };

export const pieceBytesMax = 64 * 1024;
const stampBytesMax = 40;
const newline = 10;
const space = 32;

/**
 * Cut the body of a log with timestamps into lines, and long lines into pieces at the same places each time.
 * `end` is whether the body ended cleanly: only then is what stands behind the last newline a line, and only
 * when the container can't write its rest any more, which the caller knows.
 */
export class LogCutter {
  #rest: Buffer = Buffer.alloc(0);
  /** The line that is being cut, once its time is read. */
  #at: Stamp | null = null;
  #piece = 0;

  push(part: Buffer): readonly LogLine[] {
    const found: LogLine[] = [];
    const text = this.#rest.length === 0 ? part : Buffer.concat([this.#rest, part]);
    let from = 0;
    for (;;) {
      if (this.#at === null) {
        const stamp = readStamp(text, from);
        if (stamp === "more") break;
        if (stamp === null) {
          const end = text.indexOf(newline, from);
          if (end === -1 && text.length - from < 4096) break;
          found.push({ words: text.subarray(from, end === -1 ? text.length : end).toString("utf8") });
          from = end === -1 ? text.length : end + 1;
          continue;
        }
        this.#at = stamp;
        this.#piece = 0;
        from = stamp.next;
      }
      const end = text.indexOf(newline, from);
      const size = (end === -1 ? text.length : end + 1) - from;
      if (size > pieceBytesMax) {
        found.push(this.#cut(text.subarray(from, from + pieceBytesMax), this.#at, false));
        from += pieceBytesMax;
      } else if (end !== -1) {
        found.push(this.#cut(text.subarray(from, end + 1), this.#at, true));
        from = end + 1;
      } else break;
    }
    this.#rest = text.subarray(from);
    return found;
  }

  /** What stands behind the last newline. */
  end(): readonly LogLine[] {
    const rest = this.#rest;
    this.#rest = Buffer.alloc(0);
    if (rest.length === 0) return [];
    if (this.#at !== null) return [this.#cut(rest, this.#at, true)];
    const stamp = readStamp(Buffer.concat([rest, Buffer.from("\n")]), 0);
    if (stamp === null || stamp === "more") return [{ words: rest.toString("utf8") }];
    return [this.#cut(rest.subarray(stamp.next), stamp, true)];
  }

  #cut(bytes: Buffer, { at, second }: Stamp, last: boolean): LogPiece {
    const piece = this.#piece;
    this.#piece += 1;
    if (last) this.#at = null;
    return { at, second, bytes, piece, last };
  }
}

interface Stamp {
  readonly at: bigint;
  readonly second: bigint;
  /** Where the line itself begins. */
  readonly next: number;
}

const secondPattern = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$/;
const secondLength = 19;
/** `2026-11-29T16:02:02.211653450Z`: how nearly all of them look. */
const plainLength = 30;
const letterZ = 90;
const digit0 = 48;

/** Lines of one second share most of the work. */
let cached = { text: Buffer.alloc(secondLength), second: -1n, at: 0n };

function readStamp(text: Buffer, from: number): Stamp | "more" | null {
  const plain = text[from + plainLength] === space && text[from + plainLength - 1] === letterZ;
  if (plain && text.compare(cached.text, 0, secondLength, from, from + secondLength) === 0) {
    let fraction = 0;
    for (let index = from + secondLength + 1; index < from + plainLength - 1; index += 1) {
      fraction = fraction * 10 + ((text[index] ?? digit0) - digit0);
    }
    return { at: cached.at + BigInt(fraction), second: cached.second, next: from + plainLength + 1 };
  }
  const end = text.subarray(from, from + stampBytesMax).indexOf(space);
  if (end === -1) {
    const possible = text.length - from < stampBytesMax && !text.subarray(from).includes(newline);
    return possible ? "more" : null;
  }
  const match = secondPattern.exec(text.toString("latin1", from, from + end));
  if (match === null) return null;
  const [, whole = "", fraction = "", zone = ""] = match;
  const milliseconds = Date.parse(whole + zone);
  if (Number.isNaN(milliseconds)) return null;
  const second = BigInt(milliseconds / 1000);
  if (zone === "Z") cached = { text: Buffer.from(whole), second, at: second * 1_000_000_000n };
  const at = second * 1_000_000_000n + BigInt(fraction.padEnd(9, "0"));
  return { at, second, next: from + end + 1 };
}
