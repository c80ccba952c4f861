import type { Logger } from "pino";
import { directoryBlobs } from "../blobs/directory/directory-blobs.ts";
import { s3Blobs } from "../blobs/s3/s3-blobs.ts";
import { type Config, type OptionalKey, required } from "../config.ts";
import type { BlobStore } from "../core/blob.port.ts";
import { HoldfastError } from "../core/errors.ts";
import type { Beside } from "../sandboxes/http.ts";
import { blobKeys, readCallbackKeys } from "./keys.ts";

export interface OpenBlobs {
  readonly blobs: BlobStore;
  /** For the internal listener. An S3-compatible store serves its capabilities itself, so nothing is served here. */
  readonly beside: Beside;
}

/** What `openBlobs` can't do without. */
export function blobKeysNeeded({ blobStore }: Config): readonly OptionalKey[] {
  return blobStore === "s3" ? ["s3Bucket"] : ["blobDirectory", "callbackKeysFile"];
}

/**
 * The store that the configuration names, for the gateway and the controller alike; what is missing is named by
 * its key. `callbackOrigin` is asked for when a capability is granted.
 */
export function openBlobs(config: Config, callbackOrigin: () => string, log: Logger): OpenBlobs {
  switch (config.blobStore) {
    case "directory": {
      const blobs = directoryBlobs({
        directory: required(config, "blobDirectory"),
        publicUrl: callbackOrigin,
        keys: blobKeys(readCallbackKeys(required(config, "callbackKeysFile"))),
        onFault: (error) => log.error({ err: error }, "a blob could not be served"),
      });
      return { blobs, beside: blobs.handle };
    }
    case "s3": {
      const publicEndpoint = config.s3PublicEndpoint;
      const blobs = s3Blobs({
        endpoint: config.s3Endpoint,
        ...(publicEndpoint === null ? {} : { publicEndpoint }),
        region: config.s3Region,
        bucket: required(config, "s3Bucket"),
        credentials: s3Credentials(config),
        forcePathStyle: config.s3PathStyle,
      });
      return { blobs, beside: () => Promise.resolve(false) };
    }
  }
}

/** Half of a pair is a mistake, and must not end in somebody else's identity. */
function s3Credentials({ s3AccessKeyId: accessKeyId, s3SecretAccessKey: secretAccessKey }: Config) {
  if (accessKeyId !== null && secretAccessKey !== null) return { accessKeyId, secretAccessKey };
  if (accessKeyId === null && secretAccessKey === null) return null;
  const missing = accessKeyId === null ? "HOLDFAST_S3_ACCESS_KEY_ID" : "HOLDFAST_S3_SECRET_ACCESS_KEY";
  throw new HoldfastError(
    "invalid_configuration",
    `${missing} is not set, though its other half is: set both or neither`,
  );
}
