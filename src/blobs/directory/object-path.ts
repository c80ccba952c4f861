import type { BlobKey } from "../../core/blob.port.ts";
import { keySegments, prefixSegments } from "../../core/blob-key.ts";

/** Below the 255 bytes that file systems allow for one name, with room for the suffix. */
const pieceLength = 200;

/**
 * Where a key lives below the root. Three differences between keys and paths are bridged here:
 * - `a` and `a/b` may both be objects, but a file and a folder can't share a name: objects end in `~`;
 * - a segment may be longer than a file name: it is cut into nested folders, each but the last ending in `+`;
 * - `A` and `a` are two keys, on every file system: an upper-case letter is written `=a`.
 * None of `~`, `+` and `=` occurs in a key, so no two keys meet and every path reads back to one key.
 */
export function pathOfKey(key: BlobKey): readonly string[] {
  const pieces = foldersOf(keySegments(key));
  const last = pieces.length - 1;
  return pieces.map((piece, index) => (index === last ? `${piece}~` : piece));
}

/** The folder that holds all keys below a prefix. */
export function pathOfPrefix(prefix: BlobKey): readonly string[] {
  return foldersOf(prefixSegments(prefix));
}

/** The key of an object's path, or undefined for a file that is no object. */
export function keyOfPath(path: readonly string[]): BlobKey | undefined {
  const last = path.at(-1);
  if (last?.endsWith("~") !== true) return undefined;
  const joined = [...path.slice(0, -1), last.slice(0, -1)].join("/").replaceAll("+/", "");
  return joined.replaceAll(/=([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function foldersOf(segments: readonly string[]): readonly string[] {
  return segments.flatMap((part) => {
    const escaped = part.replaceAll(/[A-Z]/g, (letter) => `=${letter.toLowerCase()}`);
    const pieces: string[] = [];
    for (let at = 0; at < escaped.length; at += pieceLength) {
      const more = at + pieceLength < escaped.length;
      pieces.push(escaped.slice(at, at + pieceLength) + (more ? "+" : ""));
    }
    return pieces;
  });
}
