import { randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, open, readdir, rename, rm, symlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { blockBytes, padding, parsePax } from "./tar-format.ts";
import { ByteReader, parseTarHeader } from "./tar-reader.ts";
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
      extract(new ByteReader(source, bytesMax), partial),
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
    const header = parseTarHeader(await reader.take(blockBytes));
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
  await reader.rest(extendedBytesMax);
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

function extendedRecords(flag: string, data: Buffer): ReadonlyMap<string, string> {
  if (flag === "x") return parsePax(data);
  const text = data.toString("utf8").replace(/\0+$/, "");
  return new Map([[flag === "L" ? "path" : "linkpath", text]]);
}
