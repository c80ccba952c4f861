import { createHash } from "node:crypto";
import { Transform } from "node:stream";
import { type BlobContent, BlobRefusal } from "./blob.port.ts";

/** Follows bytes as they stream by, and refuses when they are not the promised content. */
export interface ContentCheck {
  /** Take the next bytes. Refuses at once when there are too many. */
  take(chunk: Uint8Array): void;
  /** Whether the promised length has been taken. A reader can then call `end` before it passes the last bytes on. */
  complete(): boolean;
  /** No more bytes come. Refuses when some are missing, or when the digest is another. May be called again. */
  end(): void;
}

export function contentCheck(content: BlobContent): ContentCheck {
  const hash = createHash("sha256");
  let taken = 0n;
  let digest: string | undefined;

  return {
    take(chunk) {
      taken += BigInt(chunk.length);
      if (taken > content.bytes) {
        throw new BlobRefusal("mismatch", `there are more than the promised ${content.bytes} bytes`);
      }
      if (chunk.length > 0) hash.update(chunk);
    },
    complete: () => taken === content.bytes,
    end() {
      if (taken < content.bytes) {
        throw new BlobRefusal("mismatch", `there are ${taken} of the promised ${content.bytes} bytes`);
      }
      digest ??= hash.digest("hex");
      if (digest !== content.sha256) {
        throw new BlobRefusal("mismatch", `the bytes do not have the digest ${content.sha256}`);
      }
    },
  };
}

/**
 * Passes the promised bytes on and fails otherwise. The last bytes are held back until the digest is known, so
 * that whatever reads from here never gets a whole object of other content (S13).
 */
export function checkedStream(content: BlobContent): Transform {
  const check = contentCheck(content);
  const attempt = (step: () => void): Error | null => {
    try {
      step();
      return null;
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error));
    }
  };
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      const refusal = attempt(() => {
        check.take(chunk);
        if (check.complete()) check.end();
      });
      done(refusal, chunk);
    },
    flush(done) {
      done(attempt(() => check.end()));
    },
  });
}
