import { escape, slugify } from "./escape.mjs";
import { inline } from "./inline.mjs";

/**
 * Markdown, the part of it that prose needs: headings, paragraphs, lists, quotes, tables, fenced code, rules.
 * Each rule looks at the lines from the front and takes what belongs to it.
 */
export function markdown(text, resolve) {
  const lines = text.split("\n");
  const html = [];
  while (lines.length > 0) {
    if (lines[0].trim() === "") lines.shift();
    else html.push(rules.find((rule) => rule.starts(lines[0], lines[1] ?? "")).take(lines, resolve));
  }
  return html.join("\n");
}

const rules = [
  {
    starts: (line) => line.startsWith("```"),
    take(lines) {
      const language = lines.shift().slice(3).trim();
      const code = takeWhile(lines, (line) => !line.startsWith("```"));
      lines.shift();
      const attribute = language === "" ? "" : ` class="language-${escape(language)}"`;
      return `<pre><code${attribute}>${escape(code.join("\n"))}\n</code></pre>`;
    },
  },
  {
    starts: (line) => /^#{1,4} /.test(line),
    take(lines, resolve) {
      const [, marks, title] = /^(#+) (.*)$/.exec(lines.shift());
      return `<h${marks.length} id="${slugify(title)}">${inline(title, resolve)}</h${marks.length}>`;
    },
  },
  {
    starts: (line) => /^(?:---+|\*\*\*+)$/.test(line.trim()),
    take(lines) {
      lines.shift();
      return "<hr>";
    },
  },
  {
    starts: (line) => line.startsWith(">"),
    take(lines, resolve) {
      const quoted = takeWhile(lines, (line) => line.startsWith(">")).map((line) => line.replace(/^> ?/, ""));
      return `<blockquote>\n${markdown(quoted.join("\n"), resolve)}\n</blockquote>`;
    },
  },
  {
    starts: (line, next) => line.startsWith("|") && /^\|[\s:|-]+\|$/.test(next.trim()),
    take(lines, resolve) {
      const rows = takeWhile(lines, (line) => line.startsWith("|")).map((line) =>
        line
          .trim()
          .slice(1, -1)
          .split("|")
          .map((cell) => inline(cell.trim(), resolve)),
      );
      const [head, , ...body] = rows;
      const row = (cells, tag) => `<tr>${cells.map((cell) => `<${tag}>${cell}</${tag}>`).join("")}</tr>`;
      const filled = body.map((cells) => row(cells, "td")).join("\n");
      return `<table>\n<thead>${row(head, "th")}</thead>\n<tbody>\n${filled}\n</tbody>\n</table>`;
    },
  },
  { starts: (line) => isItem(line), take: list },
  {
    starts: () => true,
    take(lines, resolve) {
      const first = lines.shift();
      const more = takeWhile(
        lines,
        (line) => line.trim() !== "" && !/^(?:#{1,4} |>|```)/.test(line) && !isItem(line),
      );
      return `<p>${inline([first, ...more].map((line) => line.trim()).join("\n"), resolve)}</p>`;
    },
  },
];

/** Items of one kind; indented lines belong to the item before, and may hold a list of their own. */
function list(lines, resolve) {
  const ordered = /^\d/.test(lines[0]);
  const items = [];
  while (lines.length > 0 && isItem(lines[0]) && /^\d/.test(lines[0]) === ordered) {
    const text = lines.shift().replace(/^(?:[-*]|\d+\.) +/, "");
    const nested = takeWhile(lines, (line) => /^ {2,}\S/.test(line)).map((line) =>
      line.replace(/^ {2,3}/, ""),
    );
    const split = nested.findIndex((line) => isItem(line));
    const prose = split === -1 ? nested : nested.slice(0, split);
    const inner = split === -1 ? "" : `\n${list(nested.slice(split), resolve)}\n`;
    items.push(`<li>${inline([text, ...prose].join("\n"), resolve)}${inner}</li>`);
  }
  const tag = ordered ? "ol" : "ul";
  return `<${tag}>\n${items.join("\n")}\n</${tag}>`;
}

function isItem(line) {
  return /^(?:[-*]|\d+\.) +\S/.test(line);
}

function takeWhile(lines, belongs) {
  const end = lines.findIndex((line) => !belongs(line));
  return lines.splice(0, end === -1 ? lines.length : end);
}
