/** The parts of the ustar and pax formats that reproducible archives need. POSIX.1-2017, `pax`. */
export const blockBytes = 512;
export const fileBytesMax = 0o77777777777;

export type TarEntryType = "file" | "directory" | "symlink";
const flags: Readonly<Record<TarEntryType | "pax", string>> = {
  file: "0",
  directory: "5",
  symlink: "2",
  pax: "x",
};

export interface TarEntry {
  readonly type: TarEntryType;
  readonly path: string;
  readonly executable: boolean;
  readonly bytes: number;
  readonly target: string;
}

/** The header blocks of an entry: nothing in them but what the entry is, so equal trees give equal bytes. */
export function tarHeader(entry: TarEntry): Buffer {
  const path = entry.type === "directory" ? `${entry.path}/` : entry.path;
  const records: string[] = [];
  // Names that are long or not ASCII have no portable place in the ustar block.
  if (!fits(path)) records.push(paxRecord("path", path));
  if (!fits(entry.target)) records.push(paxRecord("linkpath", entry.target));
  const mode = entry.type === "file" && !entry.executable ? 0o644 : 0o755;
  const block = ustarBlock(
    flags[entry.type],
    fits(path) ? path : "pax",
    mode,
    entry.bytes,
    fits(entry.target) ? entry.target : "",
  );
  if (records.length === 0) return block;
  const data = Buffer.from(records.join(""));
  return Buffer.concat([ustarBlock(flags.pax, "pax", 0o644, data.length, ""), padded(data), block]);
}

/**
 * The one header block of a file or folder in plain ustar, without extended headers; undefined when the path has
 * no place in it: 100 bytes after a slash, 155 before.
 */
export function plainHeader(entry: {
  readonly path: string;
  readonly bytes: number;
  readonly directory: boolean;
  readonly executable: boolean;
}): Buffer | undefined {
  const path = Buffer.from(entry.directory ? `${entry.path}/` : entry.path);
  // The shortest prefix that leaves a name short enough, so that a path has one form.
  const split = path.length <= 100 ? -1 : path.indexOf(0x2f, path.length - 101);
  const name = path.subarray(split + 1);
  if (path.length > 100 && (split < 1 || split > 155 || name.length === 0)) return undefined;
  const mode = entry.directory || entry.executable ? 0o755 : 0o644;
  const block = ustarBlock(entry.directory ? flags.directory : flags.file, "", mode, entry.bytes, "");
  name.copy(block, 0);
  if (split > 0) path.copy(block, 345, 0, split);
  return sealed(block);
}

export function padded(data: Buffer): Buffer {
  return Buffer.concat([data, padding(data.length)]);
}

export function padding(bytes: number): Buffer {
  return Buffer.alloc((blockBytes - (bytes % blockBytes)) % blockBytes);
}

export function tarChecksum(block: Buffer): number {
  let sum = 0;
  for (const [index, byte] of block.entries()) sum += index >= 148 && index < 156 ? 0x20 : byte;
  return sum;
}

/** `LENGTH KEY=VALUE\n`, where the length counts itself. */
function paxRecord(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  const size = Buffer.byteLength(rest);
  let length = size + String(size).length;
  if (size + String(length).length !== length) length = size + String(length).length;
  return `${length}${rest}`;
}

export function parsePax(data: Buffer): ReadonlyMap<string, string> {
  const records = new Map<string, string>();
  for (let at = 0; at < data.length; ) {
    const space = data.indexOf(0x20, at);
    const length = Number(data.subarray(at, space).toString("latin1"));
    const record = data.subarray(space + 1, at + length - 1).toString("utf8");
    const equals = record.indexOf("=");
    if (space < 0 || !Number.isInteger(length) || length < 5 || at + length > data.length || equals < 0) {
      throw new Error("a pax header is damaged");
    }
    records.set(record.slice(0, equals), record.slice(equals + 1));
    at += length;
  }
  return records;
}

function fits(text: string): boolean {
  return text.length <= 100 && /^[\x20-\x7e]*$/.test(text);
}

function ustarBlock(flag: string, path: string, mode: number, bytes: number, target: string): Buffer {
  const block = Buffer.alloc(blockBytes);
  const octal = (value: number, width: number) => `${value.toString(8).padStart(width - 1, "0")}\0`;
  block.write(path, 0, 100, "latin1");
  block.write(octal(mode, 8), 100, "latin1");
  block.write(octal(0, 8), 108, "latin1"); // owner
  block.write(octal(0, 8), 116, "latin1"); // group
  block.write(octal(bytes, 12), 124, "latin1");
  block.write(octal(0, 12), 136, "latin1"); // modification time
  block.write(flag, 156, "latin1");
  block.write(target, 157, 100, "latin1");
  block.write("ustar\x0000", 257, "latin1");
  block.write(octal(0, 8), 329, "latin1");
  block.write(octal(0, 8), 337, "latin1");
  return sealed(block);
}

function sealed(block: Buffer): Buffer {
  block.write(`${tarChecksum(block).toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}
