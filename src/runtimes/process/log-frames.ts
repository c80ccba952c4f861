import { crc32 } from "node:zlib";
import { type Instant, instant } from "../../core/time.ts";

/**
 * The output file is a row of frames: payload length (4 bytes), checksum (4), stream (1), time in
 * microseconds (8), payload. A supervisor killed in the middle of a write, or a power failure, leaves a tail
 * that the length or the checksum gives away; what stands before it is whole.
 */
export interface Frame {
  readonly stream: "stdout" | "stderr";
  readonly at: Instant;
  readonly bytes: Uint8Array;
}

export const frameHeaderBytes = 17;
export const framePayloadBytesMax = 64 * 1024;

export function encodeFrame(frame: Frame): Buffer {
  const encoded = Buffer.allocUnsafe(frameHeaderBytes + frame.bytes.byteLength);
  encoded.writeUInt32BE(frame.bytes.byteLength, 0);
  encoded.writeUInt8(frame.stream === "stdout" ? 1 : 2, 8);
  encoded.writeBigInt64BE(frame.at, 9);
  encoded.set(frame.bytes, frameHeaderBytes);
  encoded.writeUInt32BE(crc32(encoded.subarray(8)), 4);
  return encoded;
}

/** The frame at the start of these bytes, or null while it isn't whole. `size` is where the next begins. */
export function decodeFrame(bytes: Buffer): { readonly frame: Frame; readonly size: number } | null {
  if (bytes.byteLength < frameHeaderBytes) return null;
  const length = bytes.readUInt32BE(0);
  const size = frameHeaderBytes + length;
  if (length > framePayloadBytesMax || bytes.byteLength < size) return null;
  if (crc32(bytes.subarray(8, size)) !== bytes.readUInt32BE(4)) return null;
  const payload = new Uint8Array(bytes.subarray(frameHeaderBytes, size));
  const stream = bytes.readUInt8(8) === 1 ? "stdout" : "stderr";
  return { frame: { stream, at: instant(bytes.readBigInt64BE(9)), bytes: payload }, size };
}
