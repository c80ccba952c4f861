// Check the site's links, say in it what it was made from, and declare it as the job's artifact.
import { readdir, readFile, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { holdfast, pins, step } from "./phase.mjs";

await step("fetching the site", 0);
await holdfast("download", "compile", "site.tar.gz", "compiled.tar.gz");
await holdfast("unpack", "compiled.tar.gz", "site");

await step("checking links", 30);
const pages = (await readdir("site", { recursive: true })).filter((name) => name.endsWith(".html")).sort();
let links = 0;
for (const page of pages) {
  const html = await readFile(join("site", page), "utf8");
  for (const [, target] of html.matchAll(/(?:href|src)="([^"#:]+)(?:#[^"]*)?"/g)) {
    await stat(join("site", dirname(page), target)).catch(() => {
      throw new Error(`${page}: the link to ${target} leads nowhere`);
    });
    links += 1;
  }
}
console.log(`  ${pages.length} pages, ${links} links`);

await step("packing the artifact", 60);
// Commits, and nothing of the place or time: the same pins make the same artifact, to the bit.
await writeFile("site/build.json", `${JSON.stringify({ sources: sorted(pins) }, null, 2)}\n`);
await holdfast("pack", "site", "site.tar.gz", "--manifest", "manifest.json");
await holdfast("upload", "site.tar.gz", "site.tar.gz", "--media-type", "application/gzip");

await step("declaring the artifact", 90);
await holdfast("artifact", "site.tar.gz", "--manifest", "manifest.json");
await holdfast("result", `pages=${pages.length}`, `links=${links}`);

function sorted(object) {
  return Object.fromEntries(Object.entries(object).sort(([a], [b]) => (a < b ? -1 : 1)));
}
