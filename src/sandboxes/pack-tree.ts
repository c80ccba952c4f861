import { createHash, randomBytes } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { lstat, readdir, readlink, rename, rm } from "node:fs/promises";
import { join, relative, resolve } from "node:path";
import { Readable, Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { blockBytes, fileBytesMax, padding, type TarEntry, tarHeader } from "./tar-format.ts";
import { linkStaysInside } from "./tree-path.ts";

export interface ManifestFile {
  readonly name: string;
  readonly bytes: number;
  readonly sha256: string;
}

/**
 * A tar.gz of a folder that is the same bytes for the same tree, wherever and whenever it is made. Returns the
 * manifest of the files in it.
 */
export async function packTree(folder: string, file: string): Promise<readonly ManifestFile[]> {
  const inside = relative(resolve(folder), resolve(file));
  if (!inside.startsWith("..") && inside !== resolve(file)) {
    throw new Error("the archive can't be inside the folder that it packs");
  }
  const entries = await entriesOf(folder);
  const manifest: ManifestFile[] = [];
  const partial = `${file}.partial-${randomBytes(6).toString("hex")}`;
  try {
    await pipeline(
      Readable.from(archive(folder, entries, manifest), { objectMode: false }),
      createGzip({ level: 9 }),
      withoutSystem(),
      createWriteStream(partial),
    );
    await rename(partial, file);
  } finally {
    await rm(partial, { force: true });
  }
  return manifest;
}

/** All entries in the order of their paths' bytes, so that neither locale nor file system shows. */
async function entriesOf(folder: string): Promise<readonly TarEntry[]> {
  const entries: TarEntry[] = [];
  const visit = async (below: string) => {
    for (const name of await readdir(join(folder, below))) {
      const path = below === "" ? name : `${below}/${name}`;
      entries.push(await entryOf(folder, path));
      if (entries.at(-1)?.type === "directory") await visit(path);
    }
  };
  await visit("");
  return entries.sort((a, b) => Buffer.compare(Buffer.from(a.path), Buffer.from(b.path)));
}

async function entryOf(folder: string, path: string): Promise<TarEntry> {
  const found = await lstat(join(folder, path));
  const entry = { path, executable: false, bytes: 0, target: "" };
  if (found.isDirectory()) return { ...entry, type: "directory" };
  if (found.isFile()) {
    if (found.size > fileBytesMax) throw new Error(`${path} is too large for an archive`);
    return { ...entry, type: "file", bytes: found.size, executable: (found.mode & 0o100) !== 0 };
  }
  if (!found.isSymbolicLink()) throw new Error(`${path} is neither a file, a folder nor a symbolic link`);
  const target = await readlink(join(folder, path));
  if (!linkStaysInside(path, target)) throw new Error(`the link ${path} leads out of the folder`);
  return { ...entry, type: "symlink", target };
}

async function* archive(folder: string, entries: readonly TarEntry[], manifest: ManifestFile[]) {
  for (const entry of entries) {
    yield tarHeader(entry);
    if (entry.type !== "file") continue;
    const hash = createHash("sha256");
    let bytes = 0;
    for await (const chunk of createReadStream(join(folder, entry.path)) as AsyncIterable<Buffer>) {
      hash.update(chunk);
      bytes += chunk.length;
      yield chunk;
    }
    if (bytes !== entry.bytes) throw new Error(`${entry.path} changed while it was packed`);
    yield padding(bytes);
    manifest.push({ name: entry.path, bytes, sha256: hash.digest("hex") });
  }
  yield Buffer.alloc(2 * blockBytes);
}

/** The tenth byte of a gzip header names the operating system; 255 is "unknown". */
function withoutSystem(): Transform {
  let at = 0;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      if (at <= 9 && 9 < at + chunk.length) chunk[9 - at] = 255;
      at += chunk.length;
      done(null, chunk);
    },
  });
}
