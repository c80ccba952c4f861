import { randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, open, readdir, rename, rm, symlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { blockBytes, padding, parsePax, tarChecksum } from "./tar-format.ts";
import { linkStaysInside, partsInside } from "./tree-path.ts";

const entriesMax = 200_000;
const bytesMax = 16 * 1024 ** 3;
const extendedBytesMax = 1024 * 1024;

/**
 * Unpack a tar.gz into a folder that is absent or empty, completely or not at all. Links are made last, so
 * nothing is ever written through one.
 */
export async function unpackTree(file: string, folder: string): Promise<void> {
  const there = await readdir(folder).catch(() => []);
  if (there.length > 0) throw new Error(`${folder} is not empty`);
  const partial = `${folder}.partial-${randomBytes(6).toString("hex")}`;
  try {
    await mkdir(partial, { recursive: true });
    await pipeline(createReadStream(file), createGunzip(), (source: AsyncIterable<Buffer>) =>
      extract(new ByteReader(source), partial),
    );
    await rename(partial, folder);
  } finally {
    await rm(partial, { recursive: true, force: true });
  }
}

async function extract(reader: ByteReader, folder: string): Promise<void> {
  const links: { path: string; target: string }[] = [];
  let extended: ReadonlyMap<string, string> = new Map();
  for (let entries = 0; ; ) {
    const header = parseHeader(await reader.take(blockBytes));
    if (header === undefined) break;
    if (header.flag === "x" || header.flag === "g" || header.flag === "L" || header.flag === "K") {
      if (header.bytes > extendedBytesMax) throw new Error("an extended header is too large");
      const data = await reader.take(header.bytes);
      await reader.take(padding(header.bytes).length);
      // A global header (git writes its commit there) says nothing about paths.
      if (header.flag !== "g") extended = new Map([...extended, ...extendedRecords(header.flag, data)]);
      continue;
    }
    entries += 1;
    if (entries > entriesMax) throw new Error(`the archive has more than ${entriesMax} entries`);
    const path = extended.get("path") ?? header.path;
    const target = extended.get("linkpath") ?? header.target;
    const bytes = Number(extended.get("size") ?? header.bytes);
    extended = new Map();
    const parts = partsInside(path);
    if (parts === undefined) throw new Error(`the path ${JSON.stringify(path)} leads out of the folder`);
    const place = join(folder, ...parts);

    switch (header.flag) {
      case "5":
        await mkdir(place, { recursive: true });
        break;
      case "2":
        if (!linkStaysInside(parts.join("/"), target))
          throw new Error(`the link ${path} leads out of the folder`);
        links.push({ path: place, target });
        break;
      case "0":
      case "\0":
        if (parts.length === 0) throw new Error("a file has no name");
        await mkdir(dirname(place), { recursive: true });
        await writeFile(reader, place, bytes, header.executable);
        break;
      default:
        throw new Error(`${path} is neither a file, a folder nor a symbolic link`);
    }
  }
  await reader.rest();
  for (const link of links) {
    await mkdir(dirname(link.path), { recursive: true });
    await symlink(link.target, link.path);
  }
}

async function writeFile(reader: ByteReader, place: string, bytes: number, executable: boolean) {
  if (!Number.isSafeInteger(bytes) || bytes < 0) throw new Error("an entry has no valid size");
  const handle = await open(place, "wx", executable ? 0o755 : 0o644);
  try {
    for await (const chunk of reader.stream(bytes)) await handle.writeFile(chunk);
  } finally {
    await handle.close();
  }
  await reader.take(padding(bytes).length);
}

interface Header {
  readonly flag: string;
  readonly path: string;
  readonly target: string;
  readonly bytes: number;
  readonly executable: boolean;
}

/** Undefined for the block of zeros that ends the archive. */
function parseHeader(block: Buffer): Header | undefined {
  if (block.every((byte) => byte === 0)) return undefined;
  const text = (at: number, length: number) => {
    const field = block.subarray(at, at + length);
    const end = field.indexOf(0);
    return field.subarray(0, end === -1 ? length : end).toString("utf8");
  };
  const octal = (at: number, length: number) => {
    const digits = text(at, length).trim();
    if (!/^[0-7]*$/.test(digits)) throw new Error("the archive is damaged: a number is not octal");
    return Number.parseInt(digits === "" ? "0" : digits, 8);
  };
  if (octal(148, 8) !== tarChecksum(block)) throw new Error("the archive is damaged: a checksum is wrong");
  const prefix = text(257, 6) === "ustar" ? text(345, 155) : "";
  const name = text(0, 100);
  return {
    flag: text(156, 1) === "" ? "\0" : text(156, 1),
    path: prefix === "" ? name : `${prefix}/${name}`,
    target: text(157, 100),
    bytes: octal(124, 12),
    executable: (octal(100, 8) & 0o100) !== 0,
  };
}

function extendedRecords(flag: string, data: Buffer): ReadonlyMap<string, string> {
  if (flag === "x") return parsePax(data);
  const text = data.toString("utf8").replace(/\0+$/, "");
  return new Map([[flag === "L" ? "path" : "linkpath", text]]);
}

/** Exact reads from a stream of chunks. */
class ByteReader {
  readonly #source: AsyncIterator<Buffer>;
  #chunk: Buffer = Buffer.alloc(0);
  #taken = 0;

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  async *stream(bytes: number): AsyncGenerator<Buffer> {
    for (let left = bytes; left > 0; ) {
      if (this.#chunk.length === 0) {
        const next = await this.#source.next();
        if (next.done === true) throw new Error("the archive ends too early");
        this.#chunk = next.value;
      }
      const piece = this.#chunk.subarray(0, left);
      this.#chunk = this.#chunk.subarray(piece.length);
      left -= piece.length;
      this.#taken += piece.length;
      if (this.#taken > bytesMax) throw new Error(`the archive unpacks to more than ${bytesMax} bytes`);
      yield piece;
    }
  }

  async take(bytes: number): Promise<Buffer> {
    const pieces: Buffer[] = [];
    for await (const piece of this.stream(bytes)) pieces.push(piece);
    return Buffer.concat(pieces);
  }

  /** Read to the end, so that a damaged tail is noticed; padding only, so it is bounded. */
  async rest(): Promise<void> {
    for (let skipped = this.#chunk.length; ; ) {
      const next = await this.#source.next();
      if (next.done === true) return;
      skipped += next.value.length;
      if (skipped > extendedBytesMax) throw new Error("the archive has a tail after its end");
    }
  }
}
