import { pipeline } from "node:stream/promises";
import {
  type BlobContent,
  type BlobKey,
  BlobRefusal,
  type BlobStore,
  type Capability,
} from "../../core/blob.port.ts";
import { assertOutsideTransition } from "../../core/outside.ts";
import { type Instant, instant, type Microseconds, seconds } from "../../core/time.ts";
import { type BlobHandler, blobHandler } from "./blob-handler.ts";
import { grantTarget, signingKeys } from "./capability.ts";
import { objectFiles, sweepIncoming } from "./object-files.ts";
import { pathOfKey } from "./object-path.ts";

export interface DirectoryBlobsOptions {
  /** Made when missing. Several processes may share it. */
  readonly directory: string;
  /** The origin under which sandboxes reach `handle`, such as `http://127.0.0.1:7421`; a function when it is known late. */
  readonly publicUrl: string | (() => string);
  /** Secrets of at least 32 bytes: the first signs, all verify. */
  readonly keys: readonly Uint8Array[];
  readonly clock?: () => Instant;
  /** An unfinished upload that nothing was written to for this long is removed at start. Default: an hour. */
  readonly abandonedAfter?: Microseconds;
  readonly onFault?: (error: unknown) => void;
}

export interface DirectoryBlobs extends BlobStore {
  /** For the internal listener: serves the capabilities. False when the request is not for it. */
  readonly handle: BlobHandler;
}

/** Blobs in a directory: the embedded default, with the same contract as an S3-compatible store (S13). */
export function directoryBlobs(options: DirectoryBlobsOptions): DirectoryBlobs {
  const { directory, publicUrl, onFault = () => undefined } = options;
  const clock = options.clock ?? (() => instant(BigInt(Date.now()) * 1000n));
  const keys = signingKeys(options.keys);
  const files = objectFiles(directory);
  const untouchedSince = clock() - (options.abandonedAfter ?? seconds(3600));
  sweepIncoming(directory, Number(untouchedSince / 1000n));

  const origin = () => (typeof publicUrl === "string" ? publicUrl : publicUrl()).replace(/\/$/, "");

  function grant(method: "PUT" | "GET", key: BlobKey, content: BlobContent, lifetime: Microseconds) {
    pathOfKey(key); // Refuses a key that no object can have.
    if (content.bytes < 0n || !/^[0-9a-f]{64}$/.test(content.sha256)) {
      throw new RangeError("a capability needs a length and a SHA-256 in lower-case hex");
    }
    const expires = instant(clock() + lifetime);
    const { bytes, sha256 } = content;
    const url = origin() + grantTarget({ method, key, bytes, sha256, expires }, keys);
    const headers: Capability["headers"] =
      method === "PUT"
        ? { "content-length": String(content.bytes), "content-type": "application/octet-stream" }
        : {};
    return { method, url, headers, expiresAt: expires };
  }

  return {
    async put(key, content, body, signal) {
      assertOutsideTransition("blobs.put");
      await files.put(key, content, body, signal);
    },
    async size(key, signal) {
      assertOutsideTransition("blobs.size");
      signal.throwIfAborted();
      return await files.size(key);
    },
    async verify(key, content, signal) {
      assertOutsideTransition("blobs.verify");
      try {
        await pipeline(await files.read(key, content, signal), drainAll);
        return true;
      } catch (error) {
        if (error instanceof BlobRefusal && (error.reason === "absent" || error.reason === "mismatch"))
          return false;
        throw error;
      }
    },
    async read(key, content, signal) {
      assertOutsideTransition("blobs.read");
      return await files.read(key, content, signal);
    },
    async remove(key, signal) {
      assertOutsideTransition("blobs.remove");
      signal.throwIfAborted();
      await files.remove(key);
    },
    list(prefix, signal) {
      assertOutsideTransition("blobs.list");
      return files.list(prefix, signal);
    },
    async grantUpload(key, content, lifetime) {
      assertOutsideTransition("blobs.grantUpload");
      return grant("PUT", key, content, lifetime);
    },
    async grantDownload(key, content, lifetime) {
      assertOutsideTransition("blobs.grantDownload");
      return grant("GET", key, content, lifetime);
    },
    handle: blobHandler({ files, keys, clock, onFault }),
  };
}

async function drainAll(source: AsyncIterable<Buffer>): Promise<void> {
  for await (const chunk of source) void chunk;
}
