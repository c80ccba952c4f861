import { createHmac, timingSafeEqual } from "node:crypto";
import type { BlobKey } from "../../core/blob.port.ts";
import { type Instant, instant } from "../../core/time.ts";

/** What the holder of a capability may do: one method on one object of exactly this content, until then (E18). */
export interface Grant {
  readonly method: "PUT" | "GET";
  readonly key: BlobKey;
  readonly bytes: bigint;
  readonly sha256: string;
  readonly expires: Instant;
}

export const blobPath = "/blobs/";
const keyBytesMin = 32;
const target =
  /^\/blobs\/([A-Za-z0-9._/-]{1,512})\?method=(PUT|GET)&bytes=(0|[1-9]\d{0,18})&sha256=([0-9a-f]{64})&expires=(0|[1-9]\d{0,18})&signature=([A-Za-z0-9_-]{43})$/;

/** Signing keys, newest first: the first signs, all verify, so that a key can be rotated while grants live. */
export type SigningKeys = readonly [Uint8Array, ...Uint8Array[]];

export function signingKeys(keys: readonly Uint8Array[]): SigningKeys {
  const [first, ...others] = keys;
  if (first === undefined || keys.some((key) => key.length < keyBytesMin)) {
    throw new RangeError(`signing keys: at least one, each of at least ${keyBytesMin} bytes`);
  }
  return [first, ...others];
}

/** The path and query of a grant's URL. */
export function grantTarget(grant: Grant, keys: SigningKeys): string {
  const { key, method, bytes, sha256, expires } = grant;
  const signature = sign(grant, keys[0]).toString("base64url");
  return `${blobPath}${key}?method=${method}&bytes=${bytes}&sha256=${sha256}&expires=${expires}&signature=${signature}`;
}

/** The grant that a request target carries, or undefined when it is not one that we signed. Expiry is the caller's to check. */
export function readGrant(text: string, keys: SigningKeys): Grant | undefined {
  const match = target.exec(text);
  if (match === null) return undefined;
  const [, key = "", method, bytes = "", sha256 = "", expires = "", signature = ""] = match;
  const grant: Grant = {
    method: method === "PUT" ? "PUT" : "GET",
    key,
    bytes: BigInt(bytes),
    sha256,
    expires: instant(BigInt(expires)),
  };
  const given = Buffer.from(signature, "base64url");
  // Every key is tried, whichever fits, so that the time tells nothing about which one did.
  const fits = keys.map((signingKey) => timingSafeEqual(sign(grant, signingKey), given));
  return fits.includes(true) ? grant : undefined;
}

/** No part can contain a line break, so the lines are unambiguous. */
function sign({ method, key, bytes, sha256, expires }: Grant, signingKey: Uint8Array): Buffer {
  return createHmac("sha256", signingKey)
    .update(["holdfast-blob-v1", method, key, bytes, sha256, expires].join("\n"))
    .digest();
}
