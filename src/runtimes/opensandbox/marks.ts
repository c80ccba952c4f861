import type { PrepareRequest } from "../../core/runtime.port.ts";

/**
 * What we write into a sandbox's metadata. The service makes labels of it: a legal value of at most 63 characters
 * each, which is why the digest stands in two.
 */
export const marks = {
  installation: "holdfast.dev/installation",
  name: "holdfast.dev/name",
  tenant: "holdfast.dev/tenant",
  sandbox: "holdfast.dev/sandbox",
  digestHead: "holdfast.dev/digest-head",
  digestTail: "holdfast.dev/digest-tail",
  /** The last epoch that was noted here. The guard's own is the one that counts. */
  epoch: "holdfast.dev/epoch",
  /** Set before the command may start: from then on a sandbox whose guard knows nothing has lost its disk. */
  released: "holdfast.dev/released",
} as const;

export type Metadata = Readonly<Record<string, string>>;

export function metadataOf(request: PrepareRequest): Metadata {
  return {
    [marks.installation]: request.installation,
    [marks.name]: request.name,
    [marks.tenant]: request.tenant,
    [marks.sandbox]: request.sandbox,
    [marks.digestHead]: request.specDigest.slice(0, 32),
    [marks.digestTail]: request.specDigest.slice(32),
    [marks.epoch]: String(request.epoch),
  };
}

export const digestOf = (metadata: Metadata): string =>
  `${metadata[marks.digestHead] ?? ""}${metadata[marks.digestTail] ?? ""}`;

export const epochOf = (metadata: Metadata): bigint => {
  const text = metadata[marks.epoch] ?? "";
  return /^\d{1,19}$/.test(text) ? BigInt(text) : 0n;
};
