import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type LogRecord, RuntimeRefusal } from "../../core/runtime.port.ts";
import { isCode } from "./durable.ts";
import { type Folder, files } from "./layout.ts";
import { decodeFrame, frameHeaderBytes, framePayloadBytesMax } from "./log-frames.ts";

const bufferBytes = 4 * (frameHeaderBytes + framePayloadBytesMax);
/** How long a follower that has read everything waits before it looks again. */
const idleMilliseconds = 100;
/** Every so many idle looks it asks whether the sandbox has ended without a record. */
const idleLooksBetweenChecks = 10;

export interface LogSource {
  readonly folder: Folder;
  /** Whether the outcome is on disk, cheaply. Nothing is appended after that. */
  readonly ended: () => Promise<boolean>;
  /** Look for evidence, which may conclude that it has ended. */
  readonly settle: () => Promise<void>;
}

/** A cursor is the UID and the offset of the next frame. */
export function readCursor(cursor: string | null, uid: string): number {
  if (cursor === null) return 0;
  const match = /^([0-9a-f-]{36}):(\d{1,15})$/.exec(cursor);
  if (match?.[1] !== uid) throw new RuntimeRefusal("invalid", "the log cursor is not of this sandbox");
  return Number(match[2]);
}

export async function* readLog(
  source: LogSource,
  from: number,
  follow: boolean,
  signal: AbortSignal,
): AsyncGenerator<LogRecord, void> {
  const path = join(source.folder.path, files.output);
  let file: FileHandle | null = null;
  try {
    for (let offset = from, idle = 0; ; idle += 1) {
      signal.throwIfAborted();
      // Asked before reading: when it had ended by then, what follows is all there will be.
      const ended = await source.ended();
      file ??= await openIfThere(path);
      if (file !== null) {
        for await (const { record, next } of readFrames(file, offset, source.folder.uid)) {
          idle = 0;
          offset = next;
          yield record;
          signal.throwIfAborted();
        }
      }
      if (ended || !follow) return;
      if (idle % idleLooksBetweenChecks === idleLooksBetweenChecks - 1) await source.settle();
      await delay(idleMilliseconds, undefined, { signal });
    }
  } finally {
    await file?.close();
  }
}

/** Whole frames from an offset to the end. A torn one ends it: it is completed later, or never. */
async function* readFrames(
  file: FileHandle,
  from: number,
  uid: string,
): AsyncGenerator<{ readonly record: LogRecord; readonly next: number }, void> {
  const buffer = Buffer.allocUnsafe(bufferBytes);
  for (let offset = from; ; ) {
    const { bytesRead } = await file.read(buffer, 0, bufferBytes, offset);
    let used = 0;
    for (;;) {
      const found = decodeFrame(buffer.subarray(used, bytesRead));
      if (found === null) break;
      used += found.size;
      yield { record: { cursor: `${uid}:${offset + used}`, ...found.frame }, next: offset + used };
    }
    if (used === 0) return;
    offset += used;
  }
}

async function openIfThere(path: string): Promise<FileHandle | null> {
  try {
    return await open(path, "r");
  } catch (error) {
    if (isCode(error, "ENOENT")) return null;
    throw error;
  }
}
