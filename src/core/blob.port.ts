import type { Readable } from "node:stream";
import type { Instant, Microseconds } from "./time.ts";

/**
 * Where bytes live: an S3-compatible store, or a directory. PostgreSQL decides what exists and what it must
 * digest to; the store only keeps bytes under keys. A key names its owner (tenant, job, attempt, phase) and
 * is never reused for other content, so removing garbage can't take what a new commit refers to.
 */
export interface BlobStore {
  /** Store exactly these bytes; refuses (`mismatch`) when the stream has another length or digest. Atomic: no partial object is readable. */
  put(key: BlobKey, content: BlobContent, body: Readable, signal: AbortSignal): Promise<void>;

  /** The stored length, or null. */
  size(key: BlobKey, signal: AbortSignal): Promise<bigint | null>;

  /** Read the whole object and compare length and digest. False when absent or different. */
  verify(key: BlobKey, content: BlobContent, signal: AbortSignal): Promise<boolean>;

  /** Its bytes; refuses with `absent`. The stream fails at its end when the digest is not `content.sha256`. */
  read(key: BlobKey, content: BlobContent, signal: AbortSignal): Promise<Readable>;

  /** Gone already is success. */
  remove(key: BlobKey, signal: AbortSignal): Promise<void>;

  /** All keys below a prefix that ends in `/`, in no particular order. */
  list(
    prefix: BlobKey,
    signal: AbortSignal,
  ): AsyncIterable<{ readonly key: BlobKey; readonly bytes: bigint }>;

  /**
   * A capability: one object, one method, exact length and SHA-256, until it expires (E18). Whoever holds the
   * URL can do that and nothing else. `headers` must be sent as given.
   */
  grantUpload(key: BlobKey, content: BlobContent, lifetime: Microseconds): Promise<Capability>;
  grantDownload(key: BlobKey, content: BlobContent, lifetime: Microseconds): Promise<Capability>;
}

/** Slash-separated segments of `[A-Za-z0-9._-]`, none of them `.` or `..`, at most 512 characters in all. */
export type BlobKey = string;

export interface BlobContent {
  readonly bytes: bigint;
  /** Lower-case hex. */
  readonly sha256: string;
}

export interface Capability {
  readonly method: "PUT" | "GET";
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly expiresAt: Instant;
}

export class BlobRefusal extends Error {
  override readonly name = "BlobRefusal";
  readonly reason: "mismatch" | "absent" | "invalid_key" | "expired" | "forbidden";
  constructor(reason: BlobRefusal["reason"], message: string) {
    super(message);
    this.reason = reason;
  }
}
