/** Split `---` front matter from the body. Values are text; `tags` is a list separated by commas. */
export function parseFrontMatter(text, file) {
  const match = /^---\n([\s\S]*?)\n---\n/.exec(text);
  if (match === null) throw new Error(`${file}: front matter between --- lines is missing`);
  const meta = {};
  for (const line of match[1].split("\n")) {
    const colon = line.indexOf(":");
    if (colon < 1) throw new Error(`${file}: "${line}" is not "key: value"`);
    meta[line.slice(0, colon).trim()] = line.slice(colon + 1).trim();
  }
  if (meta.title === undefined) throw new Error(`${file}: a title is missing`);
  const tags = (meta.tags ?? "").split(",").map((tag) => tag.trim());
  return { meta: { ...meta, tags: tags.filter((tag) => tag !== "") }, body: text.slice(match[0].length) };
}
