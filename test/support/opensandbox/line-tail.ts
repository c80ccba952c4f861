import { closeSync, openSync, readSync } from "node:fs";

const bufferBytes = 256 * 1024;

/** Reads what a file has grown by and gives its lines, as the daemon does: without their ends, `\n` for an empty one. */
export class LineTail {
  readonly #path: string;
  readonly #give: (line: string) => void;
  readonly #buffer = Buffer.alloc(bufferBytes);
  #offset = 0;
  #pending: Buffer = Buffer.alloc(0);
  #afterReturn = false;

  constructor(path: string, give: (line: string) => void) {
    this.#path = path;
    this.#give = give;
  }

  read(last: boolean): void {
    let file: number;
    try {
      file = openSync(this.#path, "r");
    } catch {
      return;
    }
    try {
      for (;;) {
        const size = readSync(file, this.#buffer, 0, bufferBytes, this.#offset);
        if (size === 0) break;
        this.#offset += size;
        this.#take(Buffer.concat([this.#pending, this.#buffer.subarray(0, size)]));
      }
    } finally {
      closeSync(file);
    }
    if (last && this.#pending.length > 0) this.#give(this.#pending.toString("utf8"));
  }

  #take(bytes: Buffer): void {
    let from = 0;
    for (let at = 0; at < bytes.length; at += 1) {
      const byte = bytes[at];
      if (byte !== 10 && byte !== 13) continue;
      const line = bytes.subarray(from, at);
      if (line.length > 0) this.#give(line.toString("utf8"));
      else if (byte !== 10 || !this.#afterReturn || at !== from) this.#give("\n");
      this.#afterReturn = byte === 13;
      from = at + 1;
    }
    this.#pending = Buffer.from(bytes.subarray(from));
  }
}
