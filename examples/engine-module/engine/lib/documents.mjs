import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { compare } from "./escape.mjs";
import { parseFrontMatter } from "./front-matter.mjs";

/** All Markdown documents of a folder: pages by their `order`, notes with the newest first. */
export async function readDocuments(folder, kind) {
  const names = (await readdir(folder)).filter((name) => name.endsWith(".md")).sort();
  const documents = [];
  for (const name of names) {
    const file = join(folder, name);
    const { meta, body } = parseFrontMatter(await readFile(file, "utf8"), name);
    const slug = name.slice(0, -3);
    if (kind === "note" && !/^\d{4}-\d\d-\d\d$/.test(meta.date ?? "")) {
      throw new Error(`${name}: a note needs a date like 2026-03-09`);
    }
    documents.push({ ...meta, kind, slug, body, path: pathOf(kind, slug), minutes: readingMinutes(body) });
  }
  const order =
    kind === "note" ? (it) => `${99999999 - Number(it.date.replaceAll("-", ""))}` : (it) => it.order ?? "9";
  return documents.sort((a, b) => compare(order(a), order(b)) || compare(a.slug, b.slug));
}

function pathOf(kind, slug) {
  if (kind === "note") return `notes/${slug}/`;
  return slug === "index" ? "" : `${slug}/`;
}

function readingMinutes(body) {
  return Math.max(1, Math.round(body.split(/\s+/).length / 200));
}
