import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { BlobRefusal, type BlobStore } from "../../src/core/blob.port.ts";
import { assertOutsideTransition } from "../../src/core/outside.ts";
import { noBlobs } from "./gateway.ts";

/** Objects of a test that only puts, reads and removes, checked like a real store's. */
export function memoryBlobs(): BlobStore & { readonly objects: Map<string, Buffer> } {
  const objects = new Map<string, Buffer>();
  return {
    ...noBlobs,
    objects,
    async put(key, { bytes, sha256 }, body) {
      assertOutsideTransition("blobs.put");
      const content = await buffer(body);
      const digest = createHash("sha256").update(content).digest("hex");
      if (BigInt(content.length) !== bytes || digest !== sha256)
        throw new BlobRefusal("mismatch", "other bytes");
      objects.set(key, content);
    },
    async read(key) {
      assertOutsideTransition("blobs.read");
      const content = await Promise.resolve(objects.get(key));
      if (content === undefined) throw new BlobRefusal("absent", "there is no such object");
      return Readable.from(pieces(content));
    },
    async remove(key) {
      assertOutsideTransition("blobs.remove");
      await Promise.resolve(objects.delete(key));
    },
  };
}

function* pieces(bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += 4096) yield bytes.subarray(at, at + 4096);
}
