import { addAbortSignal, pipeline as joinStreams, Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { type BlobContent, type BlobKey, BlobRefusal, type BlobStore } from "../../core/blob.port.ts";
import { keySegments, prefixSegments } from "../../core/blob-key.ts";
import { checkedStream } from "../../core/content-check.ts";
import { assertOutsideTransition } from "../../core/outside.ts";
import { type Instant, instant, type Microseconds } from "../../core/time.ts";
import { presignDownload, presignUpload, type S3Grant } from "./s3-capability.ts";
import { type S3Connection, type S3Place, s3Connection } from "./s3-client.ts";
import { failureOf, statusOf } from "./s3-failure.ts";

export interface S3BlobsOptions extends S3Place {
  /** How sandboxes reach the server, when it is not by `endpoint`. */
  readonly publicEndpoint?: string;
  readonly clock?: () => Instant;
}

/** One request carries one object. */
const objectBytesMax = 5n * 1024n ** 3n;

/**
 * Blobs in an S3-compatible store. It relies on little: atomic PUT, signatures, listing after writing. No object
 * is ever public, and no conditional write is needed: keys are unique, and PostgreSQL decides what exists.
 */
export function s3Blobs(options: S3BlobsOptions): BlobStore {
  const { bucket, publicEndpoint } = options;
  const connection = s3Connection(options);
  const granting =
    publicEndpoint === undefined ? connection : s3Connection({ ...options, endpoint: publicEndpoint });
  const clock = options.clock ?? (() => instant(BigInt(Date.now()) * 1000n));

  function grantOf(key: BlobKey, content: BlobContent, lifetime: Microseconds): S3Grant {
    objectKey(key);
    soundContent(content);
    return { bucket, key, content, lifetime, now: clock() };
  }

  async function read(key: BlobKey, content: BlobContent, signal: AbortSignal): Promise<Readable> {
    const at = { Bucket: bucket, Key: objectKey(key) };
    const { sdk, client } = await connection();
    const { Body, ContentLength } = await asking(signal, () =>
      client.send(new sdk.GetObjectCommand(at), { abortSignal: signal }),
    );
    if (!(Body instanceof Readable)) throw new TypeError("the SDK gave no stream");
    if (ContentLength !== undefined && BigInt(ContentLength) !== content.bytes) {
      Body.destroy();
      throw new BlobRefusal("mismatch", `the object has ${ContentLength} bytes and not ${content.bytes}`);
    }
    return addAbortSignal(
      signal,
      joinStreams(Body, checkedStream(content), () => undefined),
    );
  }

  return {
    async put(key, content, body, signal) {
      assertOutsideTransition("blobs.put");
      objectKey(key);
      soundContent(content);
      await send(await connection(), { bucket, key, content }, body, signal);
    },
    async size(key, signal) {
      assertOutsideTransition("blobs.size");
      const at = { Bucket: bucket, Key: objectKey(key) };
      const { sdk, client } = await connection();
      return await asking(signal, async () => {
        try {
          const { ContentLength } = await client.send(new sdk.HeadObjectCommand(at), { abortSignal: signal });
          return ContentLength === undefined ? null : BigInt(ContentLength);
        } catch (error) {
          if (statusOf(error) === 404) return null;
          throw error;
        }
      });
    },
    async verify(key, content, signal) {
      assertOutsideTransition("blobs.verify");
      try {
        await pipeline(await read(key, content, signal), drainAll);
        return true;
      } catch (error) {
        const failure = failureOf(error, signal);
        if (failure instanceof BlobRefusal && ["absent", "mismatch"].includes(failure.reason)) return false;
        throw failure;
      }
    },
    async read(key, content, signal) {
      assertOutsideTransition("blobs.read");
      return await read(key, content, signal);
    },
    async remove(key, signal) {
      assertOutsideTransition("blobs.remove");
      const at = { Bucket: bucket, Key: objectKey(key) };
      const { sdk, client } = await connection();
      await asking(signal, async () => {
        try {
          await client.send(new sdk.DeleteObjectCommand(at), { abortSignal: signal });
        } catch (error) {
          if (statusOf(error) !== 404) throw error;
        }
      });
    },
    list(prefix, signal) {
      assertOutsideTransition("blobs.list");
      return listed(connection, bucket, prefix, signal);
    },
    async grantUpload(key, content, lifetime) {
      assertOutsideTransition("blobs.grantUpload");
      const grant = grantOf(key, content, lifetime);
      return await presignUpload(await granting(), grant);
    },
    async grantDownload(key, content, lifetime) {
      assertOutsideTransition("blobs.grantDownload");
      const grant = grantOf(key, content, lifetime);
      return await presignDownload(await granting(), grant);
    },
  };
}

/**
 * Send while digesting. When the stream is not what was promised, its last bytes never leave, the request is cut
 * off, and the store, which waits for the announced length, keeps nothing.
 */
async function send(
  { sdk, client }: S3Connection,
  object: { readonly bucket: string; readonly key: BlobKey; readonly content: BlobContent },
  body: Readable,
  signal: AbortSignal,
): Promise<void> {
  const { bucket, key, content } = object;
  const cut = new AbortController();
  let refusal: Error | null = null;
  const checked = joinStreams(body, checkedStream(content), (error) => {
    if (error === undefined || error === null) return;
    refusal = error;
    cut.abort(error);
  });
  const command = new sdk.PutObjectCommand({
    Bucket: bucket,
    Key: key,
    Body: checked,
    ContentLength: Number(content.bytes),
    ContentType: "application/octet-stream",
  });
  // The digest of the body is known, so it is signed as such: the store refuses other bytes too.
  command.middlewareStack.add(
    (next) => (given) => {
      const { request } = given;
      if (hasHeaders(request)) request.headers["x-amz-content-sha256"] = content.sha256;
      return next(given);
    },
    { step: "build", name: "holdfastContentDigest" },
  );
  const abortSignal = AbortSignal.any([signal, cut.signal]);
  try {
    signal.throwIfAborted();
    await client.send(command, { abortSignal });
  } catch (error) {
    throw refusal ?? failureOf(error, signal);
  } finally {
    checked.destroy();
    body.destroy();
  }
}

async function* listed(
  connection: () => Promise<S3Connection>,
  bucket: string,
  prefix: BlobKey,
  signal: AbortSignal,
): AsyncGenerator<{ readonly key: BlobKey; readonly bytes: bigint }> {
  prefixSegments(prefix);
  const { sdk, client } = await connection();
  let token: string | undefined;
  do {
    const page = await asking(signal, () =>
      client.send(
        new sdk.ListObjectsV2Command({
          Bucket: bucket,
          Prefix: prefix,
          ...(token === undefined ? {} : { ContinuationToken: token }),
        }),
        { abortSignal: signal },
      ),
    );
    for (const { Key, Size } of page.Contents ?? []) {
      if (Key !== undefined && Size !== undefined) yield { key: Key, bytes: BigInt(Size) };
    }
    token = page.IsTruncated === true ? page.NextContinuationToken : undefined;
  } while (token !== undefined);
}

async function asking<T>(signal: AbortSignal, request: () => Promise<T>): Promise<T> {
  signal.throwIfAborted();
  try {
    return await request();
  } catch (error) {
    throw failureOf(error, signal);
  }
}

function objectKey(key: BlobKey): string {
  return keySegments(key).join("/");
}

function soundContent({ bytes, sha256 }: BlobContent): void {
  if (bytes < 0n || bytes > objectBytesMax || !/^[0-9a-f]{64}$/.test(sha256)) {
    throw new RangeError("an object has at most 5 GiB, and a SHA-256 in lower-case hex");
  }
}

function hasHeaders(request: unknown): request is { headers: Record<string, string> } {
  return typeof request === "object" && request !== null && "headers" in request;
}

async function drainAll(source: AsyncIterable<Buffer>): Promise<void> {
  for await (const chunk of source) void chunk;
}
