import { type Static, Type } from "typebox";
import { Name, Sha256 } from "./job.ts";

/** Bodies of the callback, as docs/reference/sandbox-contract.md describes them to whoever runs in a sandbox. */
const closed = { additionalProperties: false } as const;

export const callbackLimits = {
  objectsMax: 64,
  objectBytesMax: 17_179_869_184,
  resultBytesMax: 16_384,
  manifestFilesMax: 5000,
  bodyBytesMax: 1_048_576,
} as const;

export const ObjectName = Type.String({ pattern: "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$" });
const Bytes = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });

export const ProgressReport = Type.Object(
  {
    message: Type.String({ minLength: 1, maxLength: 1000 }),
    percent: Type.Optional(Type.Integer({ minimum: 0, maximum: 100 })),
  },
  closed,
);
export const PinsReport = Type.Object(
  {
    pins: Type.Record(Name, Type.String({ pattern: "^[0-9a-f]{40}([0-9a-f]{24})?$" }), {
      minProperties: 1,
      maxProperties: 32,
      additionalProperties: false,
    }),
  },
  closed,
);
export const ResultReport = Type.Record(Type.String(), Type.Unknown());
export const UploadRequest = Type.Object(
  {
    bytes: Bytes,
    sha256: Sha256,
    media_type: Type.Optional(
      Type.String({ pattern: "^[a-z0-9][a-z0-9.+-]{0,62}/[a-z0-9][a-z0-9.+-]{0,62}$" }),
    ),
  },
  closed,
);
export const CompleteRequest = Type.Object({ bytes: Bytes, sha256: Sha256 }, closed);
export const DownloadRequest = Type.Object({}, closed);
export const ArtifactReport = Type.Object(
  {
    object: ObjectName,
    files: Type.Array(
      Type.Object(
        {
          name: Type.String({ minLength: 1, maxLength: 512, pattern: "^[^\\u0000]*$" }),
          bytes: Bytes,
          sha256: Sha256,
        },
        closed,
      ),
      { maxItems: callbackLimits.manifestFilesMax },
    ),
  },
  closed,
);

export type ProgressReport = Static<typeof ProgressReport>;
export type PinsReport = Static<typeof PinsReport>;
export type UploadRequest = Static<typeof UploadRequest>;
export type CompleteRequest = Static<typeof CompleteRequest>;
export type ArtifactReport = Static<typeof ArtifactReport>;
