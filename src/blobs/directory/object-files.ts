import { randomBytes } from "node:crypto";
import { constants, mkdirSync, readdirSync, realpathSync, rmSync, statSync } from "node:fs";
import { type FileHandle, lstat, mkdir, open, opendir, realpath, rename, rm, rmdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { addAbortSignal, pipeline as joinStreams, type Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { type BlobContent, type BlobKey, BlobRefusal } from "../../core/blob.port.ts";
import { checkedStream, contentCheck } from "../../core/content-check.ts";
import { keyOfPath, pathOfKey, pathOfPrefix } from "./object-path.ts";

const chunkBytes = 64 * 1024;
/** A put and the pruning of an emptied folder may meet; the put makes the folder again, at most this often. */
const publishTriesMax = 16;

/**
 * Objects as files. An object is written to `incoming/`, forced to disk, and renamed into `objects/`, so that
 * what is readable is always whole; a crash leaves at most a file in `incoming/`, which nothing reads.
 */
export interface ObjectFiles {
  put(key: BlobKey, content: BlobContent, body: Readable, signal: AbortSignal): Promise<void>;
  size(key: BlobKey): Promise<bigint | null>;
  read(key: BlobKey, content: BlobContent, signal: AbortSignal): Promise<Readable>;
  remove(key: BlobKey): Promise<void>;
  list(prefix: BlobKey, signal: AbortSignal): AsyncIterable<ListedObject>;
}

export interface ListedObject {
  readonly key: BlobKey;
  readonly bytes: bigint;
}

export function objectFiles(directory: string): ObjectFiles {
  mkdirSync(join(directory, "objects"), { recursive: true, mode: 0o700 });
  mkdirSync(join(directory, "incoming"), { recursive: true, mode: 0o700 });
  const root = realpathSync(join(directory, "objects"));
  const incoming = realpathSync(join(directory, "incoming"));
  const fileOf = (key: BlobKey) => join(root, ...pathOfKey(key));

  /** Folders below the root are ours and plain: a symbolic link among them leads elsewhere and is refused. */
  async function plainFolder(folder: string): Promise<void> {
    if ((await realpath(folder)) !== folder) {
      throw new BlobRefusal("forbidden", "a folder of the store is a symbolic link");
    }
  }

  async function publish(temporary: string, file: string): Promise<void> {
    const folder = dirname(file);
    for (let tries = 1; ; tries += 1) {
      try {
        await mkdir(folder, { recursive: true, mode: 0o700 });
        await plainFolder(folder);
        await rename(temporary, file);
        break;
      } catch (error) {
        if (!hasCode(error, "ENOENT") || tries === publishTriesMax) throw error;
      }
    }
    // Every folder on the way: one that another put has just made may not be on disk yet.
    for (let at = folder; ; at = dirname(at)) {
      await syncFolder(at);
      if (at === root) return;
    }
  }

  async function put(key: BlobKey, content: BlobContent, body: Readable, signal: AbortSignal) {
    const file = fileOf(key);
    const temporary = join(incoming, randomBytes(16).toString("hex"));
    const handle = await open(temporary, "wx", 0o600);
    try {
      try {
        await pipeline(body, (source: AsyncIterable<Buffer>) => writeChecked(handle, content, source), {
          signal,
        });
        await handle.sync();
      } finally {
        await handle.close();
      }
      signal.throwIfAborted();
      await publish(temporary, file);
    } catch (error) {
      await rm(temporary, { force: true });
      throw error;
    }
  }

  async function openObject(key: BlobKey): Promise<FileHandle> {
    const file = fileOf(key);
    try {
      await plainFolder(dirname(file));
      const handle = await open(file, constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0));
      if ((await handle.stat()).isFile()) return handle;
      await handle.close();
    } catch (error) {
      if (hasCode(error, "ELOOP")) throw new BlobRefusal("forbidden", "the object is a symbolic link");
      if (!hasCode(error, "ENOENT")) throw error;
    }
    throw new BlobRefusal("absent", "there is no such object");
  }

  async function read(key: BlobKey, content: BlobContent, signal: AbortSignal): Promise<Readable> {
    signal.throwIfAborted();
    const handle = await openObject(key);
    const { size } = await handle.stat({ bigint: true });
    if (size === content.bytes) return addAbortSignal(signal, checkedReadable(handle, content));
    await handle.close();
    throw new BlobRefusal("mismatch", `the object has ${size} bytes and not ${content.bytes}`);
  }

  async function size(key: BlobKey): Promise<bigint | null> {
    try {
      const handle = await openObject(key);
      try {
        return (await handle.stat({ bigint: true })).size;
      } finally {
        await handle.close();
      }
    } catch (error) {
      if (error instanceof BlobRefusal && error.reason === "absent") return null;
      throw error;
    }
  }

  async function remove(key: BlobKey): Promise<void> {
    const file = fileOf(key);
    try {
      await plainFolder(dirname(file));
    } catch (error) {
      if (hasCode(error, "ENOENT")) return;
      throw error;
    }
    await rm(file, { force: true });
    await syncFolder(dirname(file)).catch(ignoreCode("ENOENT"));
    for (let at = dirname(file); at !== root; at = dirname(at)) {
      try {
        await rmdir(at);
      } catch {
        return; // Not empty, or pruned by another: what is left is somebody else's.
      }
    }
  }

  async function* walk(
    folder: string,
    below: readonly string[],
    signal: AbortSignal,
  ): AsyncGenerator<ListedObject> {
    signal.throwIfAborted();
    const entries = await opendir(folder).catch(ignoreCode("ENOENT"));
    if (entries === undefined) return;
    for await (const entry of entries) {
      const path = [...below, entry.name];
      const file = join(folder, entry.name);
      if (entry.isDirectory()) yield* walk(file, path, signal);
      const key = entry.isFile() ? keyOfPath(path) : undefined;
      const found = key === undefined ? undefined : await lstat(file).catch(ignoreCode("ENOENT"));
      if (key !== undefined && found !== undefined) yield { key, bytes: BigInt(found.size) };
    }
  }

  return {
    put,
    size,
    read,
    remove,
    async *list(prefix, signal): AsyncGenerator<ListedObject> {
      const path = pathOfPrefix(prefix);
      const folder = join(root, ...path);
      try {
        await plainFolder(folder);
      } catch (error) {
        if (hasCode(error, "ENOENT")) return;
        throw error;
      }
      yield* walk(folder, path, signal);
    },
  };
}

/**
 * Remove what crashed uploads left behind. Another process may be writing to the same directory at this
 * moment, so a file counts as abandoned only when nothing was written to it for a while.
 */
export function sweepIncoming(directory: string, untouchedSinceMs: number): number {
  const incoming = join(directory, "incoming");
  let swept = 0;
  for (const name of readdirSync(incoming)) {
    const file = join(incoming, name);
    const found = statSync(file, { throwIfNoEntry: false });
    if (found === undefined || found.mtimeMs > untouchedSinceMs) continue;
    rmSync(file, { force: true, recursive: true });
    swept += 1;
  }
  return swept;
}

async function writeChecked(handle: FileHandle, content: BlobContent, source: AsyncIterable<Buffer>) {
  const check = contentCheck(content);
  for await (const chunk of source) {
    check.take(chunk);
    await handle.writeFile(chunk);
  }
  check.end();
}

function checkedReadable(handle: FileHandle, content: BlobContent): Readable {
  const source = handle.createReadStream({ highWaterMark: chunkBytes });
  // Ends one when the other ends, whoever is first; the reader sees the error on the checked one.
  return joinStreams(source, checkedStream(content), () => undefined);
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, constants.O_RDONLY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}

const ignoreCode = (code: string) => (error: unknown) => {
  if (!hasCode(error, code)) throw error;
  return undefined;
};
