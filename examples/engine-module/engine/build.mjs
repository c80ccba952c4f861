#!/usr/bin/env node
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { hashAssets } from "./lib/assets.mjs";
import { readDocuments } from "./lib/documents.mjs";
import { atomFeed, sitemap } from "./lib/feeds.mjs";
import { buildPages } from "./lib/pages.mjs";

const [content, out] = process.argv.slice(2);
if (content === undefined || out === undefined) {
  console.error("usage: node build.mjs CONTENT OUT");
  process.exit(2);
}

const { version } = JSON.parse(await readFile(new URL("package.json", import.meta.url), "utf8"));
const site = JSON.parse(await readFile(join(content, "site.json"), "utf8"));
const assets = await hashAssets(join(content, "assets"));
const pages = await readDocuments(join(content, "pages"), "page");
const notes = await readDocuments(join(content, "notes"), "note");

const files = new Map([
  ...assets.files,
  ...(await buildPages({ site, version, assets, pages, notes })),
  ["feed.xml", atomFeed(site, notes)],
  ["sitemap.xml", sitemap(site, [...pages, ...notes])],
]);
for (const [name, bytes] of files) {
  await mkdir(dirname(join(out, name)), { recursive: true });
  await writeFile(join(out, name), bytes);
  console.log(`  ${name}`);
}
console.log(`tideline ${version}: ${pages.length} pages, ${notes.length} notes, ${assets.files.size} assets`);
