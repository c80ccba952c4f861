import { createHash } from "node:crypto";
import type { BundleEntry, BundleFile, BundleManifest } from "./bundle.ts";

/** Collects what is in a bundle, in any order. */
export class ManifestBook {
  readonly #lines: { readonly path: string; readonly line: string }[] = [];
  readonly #files: BundleFile[] = [];

  /** `sha256`: of a file's bytes. */
  add({ path, type, bytes, executable }: BundleEntry, sha256: string | null): void {
    this.#lines.push({ path, line: JSON.stringify([path, type, executable, bytes, sha256]) });
    if (sha256 !== null) this.#files.push({ path, bytes, sha256, executable });
  }

  manifest(): BundleManifest {
    const hash = createHash("sha256");
    for (const { line } of this.#lines.toSorted(byPath)) hash.update(`${line}\n`);
    return {
      tree: hash.digest("hex"),
      entries: this.#lines.length,
      files: this.#files.toSorted(byPath),
    };
  }
}

/** By the bytes of their paths, so that neither locale nor file system shows. */
export function byPath(a: { readonly path: string }, b: { readonly path: string }): number {
  return Buffer.compare(Buffer.from(a.path), Buffer.from(b.path));
}
