import { tarChecksum } from "./tar-format.ts";

/** It is no archive, or not a whole one. */
export class ArchiveDamaged extends Error {
  override readonly name = "ArchiveDamaged";
}

/** There is more in it than its reader takes. */
export class UnpacksTooLarge extends Error {
  override readonly name = "UnpacksTooLarge";
  constructor(bytesMax: number) {
    super(`the archive unpacks to more than ${bytesMax} bytes`);
  }
}

/** An entry as its block says; `flag` is the type, `\\0` for a file as old archives have it. */
export interface TarHeader {
  readonly flag: string;
  readonly path: string;
  readonly target: string;
  readonly bytes: number;
  readonly executable: boolean;
}

/** Undefined for the block of zeros that ends the archive. */
export function parseTarHeader(block: Buffer): TarHeader | undefined {
  if (block.every((byte) => byte === 0)) return undefined;
  const text = (at: number, length: number) => {
    const field = block.subarray(at, at + length);
    const end = field.indexOf(0);
    return field.subarray(0, end === -1 ? length : end).toString("utf8");
  };
  // What stands behind a name's end could be read as part of it by somebody else: it is no name then.
  const path = (at: number, length: number) => {
    const field = block.subarray(at, at + length);
    const end = field.indexOf(0);
    if (end !== -1 && field.subarray(end).some((byte) => byte !== 0))
      throw new ArchiveDamaged("the archive is damaged: a name goes on behind its end");
    return text(at, length);
  };
  const octal = (at: number, length: number) => {
    const digits = text(at, length).trim();
    if (!/^[0-7]*$/.test(digits)) throw new ArchiveDamaged("the archive is damaged: a number is not octal");
    return Number.parseInt(digits === "" ? "0" : digits, 8);
  };
  if (octal(148, 8) !== tarChecksum(block))
    throw new ArchiveDamaged("the archive is damaged: a checksum is wrong");
  const prefix = text(257, 6) === "ustar" ? path(345, 155) : "";
  const name = path(0, 100);
  return {
    flag: text(156, 1) === "" ? "\0" : text(156, 1),
    path: prefix === "" ? name : `${prefix}/${name}`,
    target: path(157, 100),
    bytes: octal(124, 12),
    executable: (octal(100, 8) & 0o100) !== 0,
  };
}

/** Exact reads from a stream of chunks. */
export class ByteReader {
  readonly #source: AsyncIterator<Buffer>;
  #chunk: Buffer = Buffer.alloc(0);
  readonly #bytesMax: number;
  #taken = 0;

  constructor(source: AsyncIterable<Buffer>, bytesMax: number) {
    this.#source = source[Symbol.asyncIterator]();
    this.#bytesMax = bytesMax;
  }

  async *stream(bytes: number): AsyncGenerator<Buffer> {
    for (let left = bytes; left > 0; ) {
      if (this.#chunk.length === 0) {
        const next = await this.#source.next();
        if (next.done === true) throw new ArchiveDamaged("the archive ends too early");
        this.#chunk = next.value;
      }
      const piece = this.#chunk.subarray(0, left);
      this.#chunk = this.#chunk.subarray(piece.length);
      left -= piece.length;
      this.#taken += piece.length;
      if (this.#taken > this.#bytesMax) throw new UnpacksTooLarge(this.#bytesMax);
      yield piece;
    }
  }

  async take(bytes: number): Promise<Buffer> {
    const pieces: Buffer[] = [];
    for await (const piece of this.stream(bytes)) pieces.push(piece);
    return Buffer.concat(pieces);
  }

  /** Read to the end, so that a damaged tail is noticed; padding only, so it is bounded. */
  async rest(bytesMax: number): Promise<void> {
    for (let skipped = this.#chunk.length; ; ) {
      if (this.#chunk.some((byte) => byte !== 0))
        throw new ArchiveDamaged("something follows the archive's end");
      const next = await this.#source.next();
      if (next.done === true) return;
      skipped += next.value.length;
      if (skipped > bytesMax) throw new ArchiveDamaged("the archive has a tail after its end");
      this.#chunk = next.value;
    }
  }
}
