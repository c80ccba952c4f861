import { type BlobContent, type BlobKey, BlobRefusal, type BlobStore } from "../core/blob.port.ts";
import { candidateMissing, type RunFault } from "./activation.ts";
import { BundleRefusal } from "./bundle.ts";
import { inspectBundle } from "./bundle-read.ts";

/**
 * Why a candidate can't become a revision; null when it can. All of it is read: it has the promised length and
 * digest, and it is a bundle, whoever packed it. Otherwise the next run could not begin (S13).
 */
export async function candidateFault(
  blobs: Pick<BlobStore, "read">,
  candidate: BlobContent & { readonly key: BlobKey },
  signal: AbortSignal,
): Promise<RunFault | null> {
  try {
    const packed = await blobs.read(candidate.key, candidate, signal);
    await inspectBundle(packed, candidate, { signal });
    return null;
  } catch (error) {
    if (error instanceof BlobRefusal && (error.reason === "absent" || error.reason === "mismatch")) {
      return candidateMissing;
    }
    if (!(error instanceof BundleRefusal)) throw error;
    if (error.reason === "wrong_content") return candidateMissing;
    // The agent would pack the same again.
    const message = `The candidate is no bundle: ${error.message}.`.slice(0, 1000);
    return { code: `bundle_${error.reason}`, message, retryable: false };
  }
}
