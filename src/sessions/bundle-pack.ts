import { createHash, randomBytes } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { lstat, readdir, rename, rm } from "node:fs/promises";
import { join, relative, resolve } from "node:path";
import { Readable, Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { constants, createZstdCompress } from "node:zlib";
import type { BlobContent } from "../core/blob.port.ts";
import { blockBytes, padding, plainHeader } from "../sandboxes/tar-format.ts";
import {
  type BundleEntry,
  type BundleManifest,
  type BundleQuota,
  BundleRefusal,
  bundleQuota,
  checkPath,
  PathBook,
} from "./bundle.ts";
import { byPath, ManifestBook } from "./bundle-manifest.ts";
import { withoutEmptyFrame } from "./zstd-frame.ts";

/** Below what readers allow, so that memory stays small on both sides. */
const compression = { [constants.ZSTD_c_compressionLevel]: 6, [constants.ZSTD_c_windowLog]: 22 };

/**
 * Packs a folder into `file`, which must be outside of it. The same tree gives the same bytes, wherever and
 * whenever it is made. Throws `BundleRefusal` for what no bundle may hold; then there is no file.
 */
export async function packBundle(
  folder: string,
  file: string,
  quota: BundleQuota = bundleQuota,
): Promise<{ readonly content: BlobContent; readonly manifest: BundleManifest }> {
  const inside = relative(resolve(folder), resolve(file));
  if (!inside.startsWith("..") && inside !== resolve(file)) {
    throw new Error("the bundle can't be inside the folder that it packs");
  }
  const entries = await entriesOf(folder, quota);
  const book = new ManifestBook();
  const packed = digested(quota.packedBytesMax);
  const partial = `${file}.partial-${randomBytes(6).toString("hex")}`;
  try {
    await pipeline(
      Readable.from(archive(folder, entries, quota, book), { objectMode: false }),
      createZstdCompress({ params: compression }),
      withoutEmptyFrame(),
      packed.stream,
      createWriteStream(partial),
    );
    await rename(partial, file);
  } finally {
    await rm(partial, { force: true });
  }
  return { content: packed.content(), manifest: book.manifest() };
}

async function entriesOf(folder: string, quota: BundleQuota): Promise<readonly BundleEntry[]> {
  const entries: BundleEntry[] = [];
  const paths = new PathBook();
  const visit = async (below: string) => {
    for (const name of await readdir(join(folder, below))) {
      const path = below === "" ? name : `${below}/${name}`;
      const entry = await entryOf(folder, path, quota);
      paths.add(path, entry.type);
      entries.push(entry);
      if (entries.length > quota.entriesMax) {
        throw new BundleRefusal("too_many_entries", `a bundle has at most ${quota.entriesMax} entries`);
      }
      if (entry.type === "directory") await visit(path);
    }
  };
  await visit("");
  return entries.sort(byPath);
}

async function entryOf(folder: string, path: string, quota: BundleQuota): Promise<BundleEntry> {
  checkPath(path, quota);
  const found = await lstat(join(folder, path));
  if (found.isDirectory()) return { path, type: "directory", executable: true, bytes: 0 };
  if (found.isFile())
    return { path, type: "file", executable: (found.mode & 0o100) !== 0, bytes: found.size };
  if (found.isSymbolicLink()) throw new BundleRefusal("link", `${JSON.stringify(path)} is a link`);
  throw new BundleRefusal("special_file", `${JSON.stringify(path)} is neither a file nor a folder`);
}

async function* archive(
  folder: string,
  entries: readonly BundleEntry[],
  quota: BundleQuota,
  book: ManifestBook,
): AsyncGenerator<Buffer> {
  let written = 0;
  const take = (chunk: Buffer) => {
    written += chunk.length;
    if (written <= quota.unpackedBytesMax) return chunk;
    throw new BundleRefusal(
      "unpacks_too_large",
      `a bundle unpacks to at most ${quota.unpackedBytesMax} bytes`,
    );
  };
  for (const entry of entries) {
    const header = plainHeader({ ...entry, directory: entry.type === "directory" });
    if (header === undefined) throw new BundleRefusal("path_too_long", `${entry.path} has no place in ustar`);
    yield take(header);
    let sha256: string | null = null;
    if (entry.type === "file") {
      const hash = createHash("sha256");
      let bytes = 0;
      for await (const chunk of createReadStream(join(folder, entry.path)) as AsyncIterable<Buffer>) {
        hash.update(chunk);
        bytes += chunk.length;
        yield take(chunk);
      }
      if (bytes !== entry.bytes) throw new Error(`${entry.path} changed while it was packed`);
      yield take(padding(bytes));
      sha256 = hash.digest("hex");
    }
    book.add(entry, sha256);
  }
  yield take(Buffer.alloc(2 * blockBytes));
}

/** Passes bytes on, and afterwards knows what they were. */
function digested(bytesMax: number): { readonly stream: Transform; readonly content: () => BlobContent } {
  const hash = createHash("sha256");
  let bytes = 0;
  const stream = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      hash.update(chunk);
      bytes += chunk.length;
      done(
        bytes > bytesMax ? new BundleRefusal("too_large", `a bundle has at most ${bytesMax} bytes`) : null,
        chunk,
      );
    },
  });
  return { stream, content: () => ({ bytes: BigInt(bytes), sha256: hash.digest("hex") }) };
}
