import { escape } from "./escape.mjs";

/**
 * `{{ name }}` is escaped, `{{{ name }}}` is not; `{{#each list}}…{{/each}}` sees each item's fields and those
 * around it; `{{#if name}}…{{else}}…{{/if}}`. An unknown name is an error, not an empty place.
 */
export function render(template, data) {
  const tokens = template.split(/(\{\{\{[^}]+\}\}\}|\{\{[^}]+\}\})/);
  const { html, rest } = renderUntil(tokens, [], data);
  if (rest.length > 0) throw new Error(`template: ${rest[0]} was never opened`);
  return html;
}

function renderUntil(tokens, ends, data) {
  let html = "";
  let rest = tokens;
  while (rest.length > 0) {
    const [token, ...after] = rest;
    const word = token.replaceAll(/^\{\{\{?\s*|\s*\}?\}\}$/g, "");
    if (!token.startsWith("{{")) html += token;
    else if (ends.includes(word)) return { html, rest };
    else if (/^(?:\/|else$)/.test(word)) return { html, rest };
    else if (word.startsWith("#")) {
      const block = renderBlock(word, after, data);
      html += block.html;
      rest = block.rest;
      continue;
    } else html += token.startsWith("{{{") ? String(look(word, data)) : escape(look(word, data));
    rest = after;
  }
  if (ends.length > 0) throw new Error(`template: ${ends.at(-1)} is missing`);
  return { html, rest };
}

function renderBlock(word, body, data) {
  const [kind, name] = word.slice(1).split(/\s+/);
  if (kind === "each") {
    const items = look(name, data);
    const skipped = renderSkipped(body, ["/each"]);
    const html = items.map((item) => renderUntil(skipped.inner, [], { ...data, ...item }).html).join("");
    return { html, rest: skipped.rest };
  }
  if (kind !== "if") throw new Error(`template: there is no block ${kind}`);
  const then = renderSkipped(body, ["else", "/if"]);
  const otherwise = then.end === "else" ? renderSkipped(then.rest, ["/if"]) : { inner: [], rest: then.rest };
  const value = name in data ? data[name] : "";
  const chosen = value === "" || value === false || value?.length === 0 ? otherwise.inner : then.inner;
  return { html: renderUntil(chosen, [], data).html, rest: otherwise.rest };
}

/** The tokens up to the end of this block, without looking up what is in them. */
function renderSkipped(tokens, ends) {
  let depth = 0;
  for (const [index, token] of tokens.entries()) {
    const word = token.startsWith("{{") ? token.replaceAll(/^\{\{\{?\s*|\s*\}?\}\}$/g, "") : "";
    if (depth === 0 && ends.includes(word)) {
      return { inner: tokens.slice(0, index), rest: tokens.slice(index + 1), end: word };
    }
    if (word.startsWith("#")) depth += 1;
    if (word.startsWith("/")) depth -= 1;
  }
  throw new Error(`template: ${ends.at(-1)} is missing`);
}

function look(name, data) {
  if (!(name in data)) throw new Error(`template: there is no ${name}`);
  return data[name];
}
