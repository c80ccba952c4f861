import type * as S3 from "@aws-sdk/client-s3";

export interface S3Place {
  /** The server's address; null for AWS's own of the region. */
  readonly endpoint: string | null;
  readonly region: string;
  readonly bucket: string;
  /** Null leaves it to the SDK, which finds a workload's identity where the platform gives it one. */
  readonly credentials: { readonly accessKeyId: string; readonly secretAccessKey: string } | null;
  /** `https://host/bucket/key` instead of `https://bucket.host/key`. */
  readonly forcePathStyle: boolean;
}

/** The SDK with a client for one address. */
export interface S3Connection {
  readonly sdk: typeof S3;
  readonly client: S3.S3Client;
}

const connectMs = 5000;
/** A connection on which nothing moves for this long is dead. */
const silenceMs = 60_000;
const triesMax = 3;

/** Every failure is thrown to somebody who reports it; the SDK's own lines would go to the console besides. */
const silent = { debug: ignore, info: ignore, warn: ignore, error: ignore };
function ignore(): void {}

/** Loads the SDK at the first use: it takes longer to import than most commands take to run. */
export function s3Connection(place: S3Place): () => Promise<S3Connection> {
  let connection: Promise<S3Connection> | undefined;
  return () => (connection ??= connect(place));
}

async function connect({ endpoint, region, credentials, forcePathStyle }: S3Place): Promise<S3Connection> {
  const sdk = await import("@aws-sdk/client-s3");
  const client = new sdk.S3Client({
    region,
    forcePathStyle,
    ...(endpoint === null ? {} : { endpoint }),
    ...(credentials === null ? {} : { credentials }),
    logger: silent,
    maxAttempts: triesMax,
    requestHandler: { connectionTimeout: connectMs, socketTimeout: silenceMs },
    // What is sent is digested here already, and what comes is compared with the ledger's digest. The SDK's own
    // checksums would be signed into capabilities, where whoever uses one could not repeat them.
    requestChecksumCalculation: "WHEN_REQUIRED",
    responseChecksumValidation: "WHEN_REQUIRED",
  });
  return { sdk, client };
}
