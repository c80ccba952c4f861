import { plainHeader } from "../sandboxes/tar-format.ts";

/**
 * What a session keeps between activations: a folder of files, as plain ustar compressed with zstd. The format
 * is described in docs/reference/agent-protocol.md.
 */
export interface BundleQuota {
  /** Of the compressed archive. */
  readonly packedBytesMax: number;
  /** Of the archive inside, headers and padding included. */
  readonly unpackedBytesMax: number;
  readonly entriesMax: number;
  readonly pathBytesMax: number;
  readonly depthMax: number;
}

export const bundleQuota: BundleQuota = {
  packedBytesMax: 268_435_456,
  unpackedBytesMax: 1_073_741_824,
  entriesMax: 20_000,
  pathBytesMax: 255,
  depthMax: 32,
};

/** Every reason for which a bundle is refused: stable, documented, and shown as `bundle_REASON`. */
export const bundleReasons = [
  "damaged",
  "wrong_content",
  "too_large",
  "unpacks_too_large",
  "too_many_entries",
  "path_unsafe",
  "path_too_long",
  "duplicate_path",
  "link",
  "special_file",
  "extension",
] as const;
export type BundleReason = (typeof bundleReasons)[number];

export class BundleRefusal extends Error {
  override readonly name = "BundleRefusal";
  readonly reason: BundleReason;
  constructor(reason: BundleReason, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.reason = reason;
  }
}

export interface BundleEntry {
  /** Relative, with `/` between its parts and none at its end. */
  readonly path: string;
  readonly type: "file" | "directory";
  readonly executable: boolean;
  readonly bytes: number;
}

export interface BundleFile {
  readonly path: string;
  readonly bytes: number;
  readonly sha256: string;
  readonly executable: boolean;
}

/** What is in a bundle. `tree` digests this and not the archive: equal trees have the same, whoever compressed them. */
export interface BundleManifest {
  readonly tree: string;
  readonly entries: number;
  readonly files: readonly BundleFile[];
}

/** Refuses a path that could mean another place, or another thing on another system. */
export function checkPath(path: string, quota: BundleQuota): void {
  const shown = JSON.stringify(path.slice(0, 300));
  const parts = path.split("/");
  // What was not UTF-8 has become U+FFFD on its way here.
  const unsafe = (part: string) =>
    part === "" || part === "." || part === ".." || /[\p{Cc}\\\ufffd]/u.test(part) || !part.isWellFormed();
  if (parts.some(unsafe))
    throw new BundleRefusal("path_unsafe", `the path ${shown} is not plain and relative`);
  const entry = { path, bytes: 0, directory: false, executable: false };
  const fits = Buffer.byteLength(path) <= quota.pathBytesMax && parts.length <= quota.depthMax;
  if (!fits || plainHeader(entry) === undefined) {
    const bounds = `${quota.pathBytesMax} bytes, ${quota.depthMax} parts, 100 bytes a part`;
    throw new BundleRefusal("path_too_long", `the path ${shown} has more than ${bounds}`);
  }
}

/**
 * Remembers paths, and refuses one that would be the same place as another where case or Unicode normalisation
 * doesn't count, or below a file.
 */
export class PathBook {
  readonly #places = new Map<string, { readonly path: string; type: "file" | "directory" | "implied" }>();

  add(path: string, type: "file" | "directory"): void {
    const parts = path.split("/");
    for (let depth = 1; depth < parts.length; depth += 1)
      this.#take(parts.slice(0, depth).join("/"), "implied");
    this.#take(path, type);
  }

  #take(path: string, type: "file" | "directory" | "implied"): void {
    const key = path.normalize("NFC").toUpperCase().toLowerCase().normalize("NFC");
    const known = this.#places.get(key);
    if (known === undefined) {
      this.#places.set(key, { path, type });
      return;
    }
    const folder = known.type !== "file" && type !== "file";
    const twice = known.type === "directory" && type === "directory";
    if (known.path !== path || !folder || twice) {
      const names = `${JSON.stringify(known.path)} and ${JSON.stringify(path)}`;
      throw new BundleRefusal("duplicate_path", `${names} are the same place`);
    }
    if (type === "directory") known.type = type;
  }
}
