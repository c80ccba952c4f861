import type { LogChunk } from "./log.ts";

/** What may still be stored of the output of a sandbox's owner, all of its sandboxes together. */
export interface LogRoom {
  /** Bytes of text that are left. */
  readonly bytes: bigint;
  /** The bound itself, for the mark. */
  readonly bytesMax: bigint;
  /** The mark that output was cut off stands in an earlier sandbox's output already: there is one an owner. */
  readonly marked: boolean;
}

/**
 * As much as there is room for, to the last line that fits, with the mark where the rest is missing. The mark
 * has its place within the bound too.
 */
export function fitLog(
  chunks: readonly LogChunk[],
  room: LogRoom,
): { readonly chunks: LogChunk[]; readonly size: bigint; readonly cut: boolean } {
  const mark = markText(room.bytesMax);
  const kept: LogChunk[] = [];
  let left = Number(room.bytes) - mark.length;
  let size = 0n;
  for (const chunk of chunks) {
    const length = Buffer.byteLength(chunk.text);
    if (length <= left) {
      kept.push(chunk);
      left -= length;
      size += BigInt(length);
      continue;
    }
    const text = beginning(chunk.text, left);
    if (text !== "") kept.push({ ...chunk, text });
    if (!room.marked) kept.push({ stream: "system", at: chunk.at, text: mark });
    return { chunks: kept, size: size + BigInt(Buffer.byteLength(text)), cut: true };
  }
  return { chunks: kept, size, cut: false };
}

const markText = (bytesMax: bigint) => `[output beyond ${bytesMax} bytes is not kept]\n`;

/** Whole lines of at most so many bytes; when not even one fits, as much of it as does, with a line break. */
function beginning(text: string, bytesMax: number): string {
  if (bytesMax <= 1) return "";
  const bytes = Buffer.from(text);
  const newline = bytes.subarray(0, bytesMax).lastIndexOf(0x0a);
  if (newline >= 0) return bytes.toString("utf8", 0, newline + 1);
  let end = bytesMax - 1;
  while (end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return `${bytes.toString("utf8", 0, end)}\n`;
}
