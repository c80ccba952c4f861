import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";

/**
 * Assets under names that carry their content's hash, so that a browser may keep them for ever. Style sheets come
 * last: `url(asset:…)` in them becomes the hashed name first.
 */
export async function hashAssets(folder) {
  const names = (await readdir(folder)).sort();
  const isStyle = (name) => name.endsWith(".css");
  const files = new Map();
  const hashed = new Map();
  for (const name of [...names.filter((it) => !isStyle(it)), ...names.filter(isStyle)]) {
    let bytes = await readFile(join(folder, name));
    if (isStyle(name)) {
      const text = bytes.toString("utf8").replaceAll(/url\(asset:([^)]+)\)/g, (_, wanted) => {
        if (!hashed.has(wanted)) throw new Error(`${name}: there is no asset ${wanted}`);
        return `url(${hashed.get(wanted)})`;
      });
      bytes = Buffer.from(text);
    }
    const digest = createHash("sha256").update(bytes).digest("hex").slice(0, 10);
    const dot = name.lastIndexOf(".");
    const hashedName = `${name.slice(0, dot)}.${digest}${name.slice(dot)}`;
    hashed.set(name, hashedName);
    files.set(`assets/${hashedName}`, bytes);
  }
  return { files, path: (name) => (hashed.has(name) ? `assets/${hashed.get(name)}` : undefined) };
}
