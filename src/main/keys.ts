import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { HoldfastError } from "../core/errors.ts";
import type { CallbackKeys } from "../sandboxes/callback.ts";

const keyBytesMin = 32;

/**
 * The keys file: one `ID:BASE64` a line, at least 32 bytes each; the first one signs, all of them verify. To
 * rotate, put a new line on top everywhere, and take the old one away when the longest deadline has passed.
 */
export function readCallbackKeys(file: string): CallbackKeys {
  const lines = readFileSync(file, "utf8")
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "" && !line.startsWith("#"));
  if (lines.length === 0) throw invalid(`${file} has no key`);
  return lines.map((line, index) => {
    const match = /^([A-Za-z0-9_-]{1,63}):([A-Za-z0-9+/]+={0,2})$/.exec(line);
    const key = Buffer.from(match?.[2] ?? "", "base64");
    if (match?.[1] === undefined || key.length < keyBytesMin) {
      throw invalid(`line ${index + 1} of ${file} is not ID:BASE64 with at least ${keyBytesMin} bytes`);
    }
    return { id: match[1], key };
  });
}

function invalid(detail: string): HoldfastError {
  return new HoldfastError("invalid_configuration", `HOLDFAST_CALLBACK_KEYS_FILE: ${detail}`);
}

/** Keys for the directory store's capabilities, made from the same file, so that there is one secret to rotate. */
export function blobKeys(keys: CallbackKeys): Buffer[] {
  return keys.map(({ key }) => createHmac("sha256", key).update("holdfast.blobs.v1").digest());
}
