import { randomBytes } from "node:crypto";
import { mkdir, open, readdir, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Readable } from "node:stream";
import type { BlobContent } from "../core/blob.port.ts";
import { type BundleManifest, type BundleQuota, bundleQuota } from "./bundle.ts";
import { readBundle } from "./bundle-read.ts";

/**
 * Unpacks a bundle into a folder that is absent or empty: completely, with the promised digest, or not at all
 * (S13). Paths were checked before anything is made, and there are no links that could lead elsewhere.
 */
export async function unpackBundle(
  packed: Readable,
  content: BlobContent,
  folder: string,
  quota: BundleQuota = bundleQuota,
): Promise<BundleManifest> {
  const there = await readdir(folder).catch(() => []);
  if (there.length > 0) {
    packed.destroy();
    throw new Error(`${folder} is not empty`);
  }
  const partial = `${folder}.partial-${randomBytes(6).toString("hex")}`;
  try {
    await mkdir(partial, { recursive: true });
    const manifest = await readBundle(
      packed,
      content,
      async ({ path, type, executable }, body) => {
        const place = join(partial, path);
        if (type === "directory") {
          await mkdir(place, { recursive: true });
          return;
        }
        await mkdir(dirname(place), { recursive: true });
        const handle = await open(place, "wx", executable ? 0o755 : 0o644);
        try {
          for await (const chunk of body) await handle.writeFile(chunk);
        } finally {
          await handle.close();
        }
      },
      { quota },
    );
    await rename(partial, folder);
    return manifest;
  } finally {
    await rm(partial, { recursive: true, force: true });
  }
}
