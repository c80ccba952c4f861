import { BlobRefusal } from "../../core/blob.port.ts";
import { HoldfastError } from "../../core/errors.ts";

/** The server's names for a body that is not what its headers promise. */
const mismatches = new Set([
  "BadDigest",
  "XAmzContentSHA256Mismatch",
  "XAmzContentChecksumMismatch",
  "IncompleteBody",
]);

export function statusOf(error: unknown): number | undefined {
  if (!(error instanceof Error) || !("$metadata" in error)) return undefined;
  const { httpStatusCode } = error.$metadata as { readonly httpStatusCode?: number };
  return httpStatusCode;
}

/** What the port says of an answer. Everything that is no fact about the object can be tried again: `unavailable`. */
export function failureOf(error: unknown, signal: AbortSignal): unknown {
  if (error instanceof BlobRefusal || error instanceof HoldfastError || signal.aborted) return error;
  const name = error instanceof Error ? error.name : "";
  if (name === "NoSuchKey") return new BlobRefusal("absent", "there is no such object");
  if (mismatches.has(name)) return new BlobRefusal("mismatch", "the store received other bytes");
  const said = error instanceof Error ? `${name}: ${error.message}` : String(error);
  return new HoldfastError("unavailable", `The object store cannot be used now (${said}).`, { cause: error });
}
