import { readFile } from "node:fs/promises";
import { compare, slugify } from "./escape.mjs";
import { markdown } from "./markdown.mjs";
import { render } from "./template.mjs";

/** Every HTML file of the site, by its path. */
export async function buildPages({ site, version, assets, pages, notes }) {
  const template = async (name) =>
    await readFile(new URL(`../templates/${name}.html`, import.meta.url), "utf8");
  const layout = await template("layout");
  const templates = {
    page: await template("page"),
    note: await template("note"),
    tag: await template("tag"),
  };
  const all = [...pages, ...notes];
  const files = new Map();

  const add = (path, title, html, root) => {
    const navigation = pages.map((page) => ({ label: page.title, href: `${root}${page.path}index.html` }));
    const data = { title, content: html, root, navigation, version, style: root + assets.path("style.css") };
    files.set(
      `${path}index.html`,
      render(layout, { ...data, site_title: site.title, language: site.language }),
    );
  };

  for (const [index, document] of all.entries()) {
    const root = "../".repeat(document.path.split("/").length - 1) || "./";
    const resolve = (target) => resolveTarget(target, root, { assets, all }, document.slug);
    const newer = document.kind === "note" ? all[index - 1] : undefined;
    const data = {
      ...document,
      root,
      content: markdown(document.body, resolve),
      tag_links: document.tags.map((tag) => ({ tag, href: `${root}tags/${slugify(tag)}/index.html` })),
      notes: document.slug === "index" ? notes.map((note) => noteLink(note, root)) : [],
      next_title: newer?.kind === "note" ? newer.title : "",
      next_href: newer?.kind === "note" ? `${root}${newer.path}index.html` : "",
    };
    add(document.path, document.title, render(templates[document.kind], data), root);
  }

  for (const tag of [...new Set(notes.flatMap((note) => note.tags))].sort(compare)) {
    const root = "../../";
    const tagged = notes.filter((note) => note.tags.includes(tag)).map((note) => noteLink(note, root));
    add(`tags/${slugify(tag)}/`, tag, render(templates.tag, { tag, notes: tagged }), root);
  }
  return files;
}

function noteLink(note, root) {
  const { title, date, summary = "" } = note;
  return { title, date, summary, href: `${root}${note.path}index.html` };
}

/** `page:`, `note:` and `asset:` lead inside the site; one that leads nowhere fails the build. */
function resolveTarget(target, root, { assets, all }, from) {
  const [, kind, name] = /^(page|note|asset):(.+)$/.exec(target) ?? [];
  if (kind === undefined) return target;
  const [slug, fragment] = name.split("#");
  const path =
    kind === "asset" ? assets.path(name) : all.find((it) => it.kind === kind && it.slug === slug)?.path;
  if (path === undefined) throw new Error(`${from}: ${target} leads nowhere`);
  if (kind === "asset") return root + path;
  return `${root}${path}index.html${fragment === undefined ? "" : `#${fragment}`}`;
}
