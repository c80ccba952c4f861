import { closeSync, fsyncSync, ftruncateSync, openSync, writeSync } from "node:fs";
import { encodeFrame, type Frame, frameHeaderBytes, framePayloadBytesMax } from "./log-frames.ts";
import { now } from "./records.ts";

/**
 * Keeps the command's output on disk, up to a bound. What comes later is read and dropped, so that the
 * command never blocks on a full pipe; one record says so in the place where the rest is missing. Writes are
 * synchronous: the pipe, and not this process's memory, is where a fast command waits.
 */
export class LogWriter {
  readonly #file: number;
  readonly #bytesMax: number;
  #size = 0;
  #full = false;
  #dropped = 0n;

  constructor(path: string, bytesMax: number) {
    this.#file = openSync(path, "wx", 0o600);
    this.#bytesMax = bytesMax;
  }

  /** Bytes of output that were not kept. */
  get dropped(): bigint {
    return this.#dropped;
  }

  write(stream: Frame["stream"], chunk: Buffer): void {
    for (let at = 0; at < chunk.byteLength; at += framePayloadBytesMax) {
      this.#keep(stream, chunk.subarray(at, at + framePayloadBytesMax));
    }
  }

  close(): void {
    try {
      fsyncSync(this.#file);
    } finally {
      closeSync(this.#file);
    }
  }

  #keep(stream: Frame["stream"], bytes: Buffer): void {
    const room = this.#full ? 0 : Math.max(0, this.#bytesMax - this.#size - frameHeaderBytes);
    const kept = bytes.subarray(0, room);
    const written = kept.byteLength === 0 || this.#append(stream, kept);
    const lost = written ? bytes.byteLength - kept.byteLength : bytes.byteLength;
    if (lost === 0) return;
    this.#dropped += BigInt(lost);
    if (this.#full) return;
    this.#full = true;
    const why = written
      ? `output beyond ${this.#bytesMax} bytes is not kept`
      : "the disk refused more output";
    this.#append("stderr", Buffer.from(`\n[holdfast: truncated: ${why}]\n`));
  }

  /** A frame that didn't fit on the disk is cut off again, or nothing after it could be read. */
  #append(stream: Frame["stream"], bytes: Buffer): boolean {
    const frame = encodeFrame({ stream, at: now(), bytes });
    try {
      let done = 0;
      while (done < frame.byteLength) {
        done += writeSync(this.#file, frame, done, frame.byteLength - done, this.#size + done);
      }
      this.#size += frame.byteLength;
      return true;
    } catch {
      ftruncateSync(this.#file, this.#size);
      return false;
    }
  }
}
