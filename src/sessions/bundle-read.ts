import { createHash } from "node:crypto";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { constants, createZstdDecompress } from "node:zlib";
import { type BlobContent, BlobRefusal } from "../core/blob.port.ts";
import { checkedStream } from "../core/content-check.ts";
import { blockBytes, padding } from "../sandboxes/tar-format.ts";
import {
  ArchiveDamaged,
  ByteReader,
  parseTarHeader,
  type TarHeader,
  UnpacksTooLarge,
} from "../sandboxes/tar-reader.ts";
import {
  type BundleEntry,
  type BundleManifest,
  type BundleQuota,
  BundleRefusal,
  bundleQuota,
  checkPath,
  PathBook,
} from "./bundle.ts";
import { ManifestBook } from "./bundle-manifest.ts";
import { singleFrame } from "./zstd-frame.ts";

/** Compressed data may ask its reader for this much memory: 2 to the power of it. */
export const windowLog = 23;
/** Zeros after the end: tar pads to whole records. */
const tailBytesMax = 65_536;

/** What is done with each entry. A file's body has to be read to its end. */
export type EntryVisitor = (entry: BundleEntry, body: AsyncIterable<Buffer>) => Promise<void>;

/**
 * Reads a whole bundle once, entry by entry, in bounded memory. Throws `BundleRefusal` for what is no bundle,
 * is more than the quota, or has not the promised length and digest; then what was visited is worth nothing.
 */
export async function readBundle(
  packed: Readable,
  content: BlobContent,
  visit: EntryVisitor,
  options: { readonly quota?: BundleQuota; readonly signal?: AbortSignal } = {},
): Promise<BundleManifest> {
  const { quota = bundleQuota, signal } = options;
  if (content.bytes > quota.packedBytesMax) {
    packed.destroy();
    throw new BundleRefusal("too_large", `a bundle has at most ${quota.packedBytesMax} bytes`);
  }
  const book = new ManifestBook();
  const expand = createZstdDecompress({ params: { [constants.ZSTD_d_windowLogMax]: windowLog } });
  try {
    await pipeline(
      packed,
      checkedStream(content),
      singleFrame(),
      expand,
      async (source: AsyncIterable<Buffer>) => {
        await readEntries(new ByteReader(source, quota.unpackedBytesMax), quota, book, visit);
      },
      { signal },
    );
  } catch (error) {
    throw refusalOf(error);
  }
  return book.manifest();
}

/** What is in a bundle, after looking at all of it. */
export function inspectBundle(
  packed: Readable,
  content: BlobContent,
  options: { readonly quota?: BundleQuota; readonly signal?: AbortSignal } = {},
): Promise<BundleManifest> {
  const drain: EntryVisitor = async (_entry, body) => {
    for await (const _chunk of body);
  };
  return readBundle(packed, content, drain, options);
}

async function readEntries(
  reader: ByteReader,
  quota: BundleQuota,
  book: ManifestBook,
  visit: EntryVisitor,
): Promise<void> {
  const paths = new PathBook();
  for (let entries = 1; ; entries += 1) {
    const header = parseTarHeader(await reader.take(blockBytes));
    if (header === undefined) break;
    if (entries > quota.entriesMax) {
      throw new BundleRefusal("too_many_entries", `a bundle has at most ${quota.entriesMax} entries`);
    }
    const entry = entryOf(header, quota);
    paths.add(entry.path, entry.type);
    const hash = createHash("sha256");
    await visit(entry, hashed(reader.stream(entry.bytes), hash));
    const pad = await reader.take(padding(entry.bytes).length);
    if (pad.some((byte) => byte !== 0)) throw new BundleRefusal("damaged", "padding is not empty");
    book.add(entry, entry.type === "file" ? hash.digest("hex") : null);
  }
  await reader.rest(tailBytesMax);
}

function entryOf({ flag, path: written, bytes, executable }: TarHeader, quota: BundleQuota): BundleEntry {
  const shown = JSON.stringify(written.slice(0, 300));
  switch (flag) {
    case "0":
    case "\0":
      checkPath(written, quota);
      return { path: written, type: "file", executable, bytes };
    case "5": {
      const path = written.replace(/\/$/, "");
      checkPath(path, quota);
      if (bytes !== 0) throw new BundleRefusal("damaged", `the folder ${shown} has a size`);
      return { path, type: "directory", executable: true, bytes };
    }
    case "1":
    case "2":
      throw new BundleRefusal("link", `${shown} is a link`);
    case "3":
    case "4":
    case "6":
      throw new BundleRefusal("special_file", `${shown} is a device or pipe`);
    default:
      throw new BundleRefusal(
        "extension",
        `${shown} has the type ${JSON.stringify(flag)}, which is not plain ustar`,
      );
  }
}

async function* hashed(body: AsyncIterable<Buffer>, hash: { update(chunk: Buffer): unknown }) {
  for await (const chunk of body) {
    hash.update(chunk);
    yield chunk;
  }
}

/** What the layers below throw, in the words of bundles. A fault of the world stays what it is. */
function refusalOf(error: unknown): unknown {
  if (error instanceof BundleRefusal) return error;
  if (error instanceof UnpacksTooLarge) return new BundleRefusal("unpacks_too_large", error.message);
  if (error instanceof BlobRefusal && error.reason === "mismatch")
    return new BundleRefusal("wrong_content", error.message);
  if (error instanceof ArchiveDamaged || isDecompression(error)) {
    return new BundleRefusal("damaged", error.message, error);
  }
  return error;
}

function isDecompression(error: unknown): error is Error {
  return error instanceof Error && "code" in error && /^(ZSTD_|Z_)/.test(String(error.code));
}
