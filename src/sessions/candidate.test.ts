import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { test } from "node:test";
import { zstdCompressSync } from "node:zlib";
import { memoryBlobs } from "../../test/support/memory-blobs.ts";
import { plainHeader } from "../sandboxes/tar-format.ts";
import { candidateFault } from "./candidate.ts";

const archive = (...paths: readonly string[]) => {
  const headers = paths.map(
    (path) => plainHeader({ path, bytes: 0, directory: false, executable: false }) ?? Buffer.alloc(0),
  );
  return zstdCompressSync(Buffer.concat([...headers, Buffer.alloc(1024)]));
};
const contentOf = (bytes: Buffer) => ({
  bytes: BigInt(bytes.length),
  sha256: createHash("sha256").update(bytes).digest("hex"),
});
const never = new AbortController().signal;

test("S13: a candidate is one only when the store has the promised bytes and they are a bundle", async () => {
  const blobs = memoryBlobs();
  const codeOf = async (stored: Buffer | null, promised: Buffer) => {
    blobs.objects.clear();
    if (stored !== null) blobs.objects.set("a/candidate", stored);
    const fault = await candidateFault(blobs, { key: "a/candidate", ...contentOf(promised) }, never);
    return fault === null ? null : [fault.code, fault.retryable];
  };
  const good = archive("a", "b");
  assert.equal(await codeOf(good, good), null);
  assert.deepEqual(await codeOf(null, good), ["candidate_missing", true]);
  assert.deepEqual(await codeOf(archive("c"), good), ["candidate_missing", true]);
  const climbing = archive("../a");
  assert.deepEqual(await codeOf(climbing, climbing), ["bundle_path_unsafe", false]);
  const twice = archive("a", "A");
  assert.deepEqual(await codeOf(twice, twice), ["bundle_duplicate_path", false]);
  const none = Buffer.from("no archive");
  assert.deepEqual(await codeOf(none, none), ["bundle_damaged", false]);
});

test("a store that can't be read says nothing about the candidate", async () => {
  const good = archive("a");
  const broken = { read: () => Promise.resolve(Readable.from(failing())) };
  async function* failing(): AsyncGenerator<Buffer> {
    yield good.subarray(0, 5);
    throw await Promise.resolve(new Error("the disk is gone"));
  }
  await assert.rejects(candidateFault(broken, { key: "a", ...contentOf(good) }, never), /the disk is gone/);
});
