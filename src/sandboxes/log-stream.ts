import type { SecretMatcher } from "./secret-matcher.ts";

/**
 * The bytes of one stream between being read and being stored: where secrets lie in them, and where they may be
 * cut. Offsets count from the beginning of this object's life, so that they stay what they are when bytes go.
 * Each byte is copied and searched once, however it arrives and however late it is taken.
 */
export interface LogStream {
  push(bytes: Uint8Array): void;
  /** The next part that can be stored now, with its secrets masked; null when there is none. */
  cut(all: "lines" | "partial" | "end"): { readonly bytes: Buffer; readonly size: number } | null;
  readonly length: number;
}

const partBytesMax = 65_536;
/** Masked bytes without a place to cut go out after so many, so that nothing can make this grow for ever. */
const heldBytesMax = 262_144;
const mask = Buffer.from("***");

interface Range {
  readonly from: number;
  readonly to: number;
}

export function logStream(matcher: SecretMatcher): LogStream {
  const search = matcher.start();
  let buffer = Buffer.alloc(0);
  /** Where the first and the end of the waiting bytes are in the buffer, and the offset of the first. */
  let start = 0;
  let end = 0;
  let base = 0;
  /** Secrets that were found and not yet stored, in order, none of them overlapping. */
  const secrets: Range[] = [];
  let secretsDone = 0;

  function found(to: number, length: number): void {
    let from = Math.max(base, to - length);
    for (let last = secrets.at(-1); last !== undefined && last.to > from; last = secrets.at(-1)) {
      if (secrets.length <= secretsDone) break;
      from = Math.min(from, last.from);
      secrets.pop();
    }
    secrets.push({ from, to });
  }

  function room(bytes: number): void {
    if (end + bytes <= buffer.length) return;
    const waiting = buffer.subarray(start, end);
    const grown = Buffer.allocUnsafe(Math.max(partBytesMax, 2 * (waiting.length + bytes)));
    waiting.copy(grown);
    buffer = grown;
    end -= start;
    start = 0;
  }

  const at = (offset: number) => start + offset - base;
  const newlineBefore = (offset: number) => {
    const index = buffer.subarray(start, at(offset)).lastIndexOf(0x0a);
    return base + index + 1;
  };

  function cutPoint(all: "lines" | "partial" | "end"): number {
    const last = base + end - start;
    // What may be the beginning of a secret waits for the rest of it.
    const safe = all === "end" ? last : Math.max(base, last - search.open);
    let cut = Math.min(safe, base + partBytesMax);
    const full = cut === base + partBytesMax;
    for (;;) {
      const line = newlineBefore(cut);
      if (line > base) cut = line;
      else if (!full && all === "lines") return base;
      const secret = secretAcross(cut);
      if (secret === undefined) break;
      if (secret.from > base) {
        // In front of it a line may end; without one, a part of a line goes out only if it may.
        cut = secret.from;
        continue;
      }
      if (secret.to > safe && last - base <= heldBytesMax) return base;
      cut = secret.to;
      break;
    }
    if (cut === last && all === "end") return cut;
    const whole = wholeCharacters(cut);
    return secretAcross(whole) === undefined ? whole : cut;
  }

  /** The secret that a cut would divide. */
  function secretAcross(cut: number): Range | undefined {
    let low = secretsDone;
    let high = secrets.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((secrets[middle]?.to ?? 0) > cut) high = middle;
      else low = middle + 1;
    }
    const secret = secrets[low];
    return secret !== undefined && secret.from < cut ? secret : undefined;
  }

  /** The last place up to `cut` that is neither inside a UTF-8 sequence nor between CR and LF. */
  function wholeCharacters(cut: number): number {
    if (cut > base && buffer[at(cut) - 1] === 0x0d) return cut - 1;
    for (let back = 1; back <= Math.min(3, cut - base); back += 1) {
      const byte = buffer[at(cut) - back] ?? 0;
      if (byte < 0x80) break;
      if (byte >= 0xc0) {
        const size = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
        return size > back ? cut - back : cut;
      }
    }
    return cut;
  }

  function masked(cut: number): Buffer {
    const parts: Buffer[] = [];
    let from = base;
    for (; secretsDone < secrets.length; secretsDone += 1) {
      const secret = secrets[secretsDone];
      if (secret === undefined || secret.to > cut) break;
      parts.push(buffer.subarray(at(from), at(secret.from)), mask);
      from = secret.to;
    }
    if (secretsDone > 1024 || secretsDone === secrets.length) {
      secrets.splice(0, secretsDone);
      secretsDone = 0;
    }
    return Buffer.concat([...parts, buffer.subarray(at(from), at(cut))]);
  }

  return {
    get length() {
      return end - start;
    },
    push(bytes) {
      room(bytes.length);
      buffer.set(bytes, end);
      const offset = base + end - start;
      end += bytes.length;
      search.read(bytes, (index, length) => found(offset + index, length));
    },
    cut(all) {
      if (end === start) return null;
      const cut = cutPoint(all);
      const size = cut - base;
      if (size === 0) return null;
      const bytes = masked(cut);
      start += size;
      base = cut;
      if (start === end) {
        start = 0;
        end = 0;
        if (buffer.length > heldBytesMax) buffer = Buffer.alloc(0);
      }
      return { bytes, size };
    },
  };
}
