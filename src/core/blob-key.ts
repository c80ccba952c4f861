import { type BlobKey, BlobRefusal } from "./blob.port.ts";

const keyLengthMax = 512;
const segment = /^[A-Za-z0-9._-]+$/;

/** The segments of a key; refuses (`invalid_key`) one that could mean something else to a file system or a URL. */
export function keySegments(key: BlobKey): readonly string[] {
  const segments = key.split("/");
  const sound = (part: string) => segment.test(part) && part !== "." && part !== "..";
  if (key.length > keyLengthMax || !segments.every(sound)) {
    throw new BlobRefusal(
      "invalid_key",
      "a key is slash-separated segments of A-Z a-z 0-9 . _ -, at most 512 characters",
    );
  }
  return segments;
}

/** The segments of what all listed keys begin with. */
export function prefixSegments(prefix: BlobKey): readonly string[] {
  if (!prefix.endsWith("/")) throw new BlobRefusal("invalid_key", "a prefix ends in a slash");
  return keySegments(prefix.slice(0, -1));
}
