import { escape } from "./escape.mjs";

/**
 * Inline Markdown: code, images, links, strong, emphasis. Code and tags that are done are set aside under a
 * private-use letter, so that later rules can't touch them.
 */
export function inline(text, resolve) {
  const kept = [];
  const keep = (html) => `\uE000${kept.push(html) - 1}\uE001`;
  const html = escape(text.replaceAll(/`([^`]+)`/g, (_, code) => keep(`<code>${escape(code)}</code>`)))
    .replaceAll(/!\[([^\]]*)\]\(([^)\s]+)\)/g, (_, alt, target) =>
      keep(`<img src="${resolve(target)}" alt="${alt}" loading="lazy">`),
    )
    .replaceAll(
      /\[([^\]]+)\]\(([^)\s]+)\)/g,
      (_, label, target) => `${keep(`<a href="${resolve(target)}">`)}${label}</a>`,
    )
    .replaceAll(/\*\*(.+?)\*\*/g, "<strong>$1</strong>")
    .replaceAll(/\*(.+?)\*/g, "<em>$1</em>")
    .replaceAll(" -- ", " – ");
  return html.replaceAll(/\uE000(\d+)\uE001/g, (_, index) => kept[Number(index)]);
}
