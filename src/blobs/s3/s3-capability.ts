import { type BlobContent, type BlobKey, type Capability } from "../../core/blob.port.ts";
import { type Instant, instant, type Microseconds } from "../../core/time.ts";
import type { S3Connection } from "./s3-client.ts";

const second = 1_000_000n;
/** The signature's own limit. */
const lifetimeSecondsMax = 7n * 86_400n;
const contentType = "application/octet-stream";
const digestHeader = "x-amz-checksum-sha256";

/** What a capability is for. */
export interface S3Grant {
  readonly bucket: string;
  readonly key: BlobKey;
  readonly content: BlobContent;
  readonly lifetime: Microseconds;
  readonly now: Instant;
}

/**
 * A presigned PUT that binds length, type and SHA-256 (E18). The SDK signs neither length nor type by itself and
 * moves the digest into the URL, where servers don't compare it with the body: then any body would do.
 */
export async function presignUpload(connection: S3Connection, grant: S3Grant): Promise<Capability> {
  const { bucket, key, content } = grant;
  const digest = Buffer.from(content.sha256, "hex").toString("base64");
  const command = new connection.sdk.PutObjectCommand({
    Bucket: bucket,
    Key: key,
    ContentLength: Number(content.bytes),
    ContentType: contentType,
    ChecksumSHA256: digest,
  });
  const { getSignedUrl } = await import("@aws-sdk/s3-request-presigner");
  const time = timeOf(grant);
  const url = await getSignedUrl(connection.client, command, {
    ...time.signed,
    signableHeaders: new Set(["host", "content-length", "content-type", digestHeader]),
    unhoistableHeaders: new Set([digestHeader]),
  });
  const headers = {
    "content-length": String(content.bytes),
    "content-type": contentType,
    [digestHeader]: digest,
  };
  return { method: "PUT", url, headers, expiresAt: time.expiresAt };
}

/** A presigned GET of one object. Its key is never used for other content, and its reader compares the digest. */
export async function presignDownload(connection: S3Connection, grant: S3Grant): Promise<Capability> {
  const command = new connection.sdk.GetObjectCommand({ Bucket: grant.bucket, Key: grant.key });
  const { getSignedUrl } = await import("@aws-sdk/s3-request-presigner");
  const time = timeOf(grant);
  const url = await getSignedUrl(connection.client, command, time.signed);
  return { method: "GET", url, headers: {}, expiresAt: time.expiresAt };
}

/** Signatures know whole seconds: both ends are rounded so that a capability never lives longer than it was granted for. */
function timeOf({ now, lifetime }: S3Grant) {
  const whole = lifetime / second;
  const limited = whole > lifetimeSecondsMax ? lifetimeSecondsMax : whole;
  const expiresIn = limited < 1n ? 1n : limited;
  const from = now / second;
  return {
    signed: { signingDate: new Date(Number(from) * 1000), expiresIn: Number(expiresIn) },
    expiresAt: instant((from + expiresIn) * second),
  };
}
