import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

export interface TestTitle {
  /** Below the root, with `/`. */
  readonly file: string;
  readonly title: string;
  /** The promises that the title carries: E6, W4, … */
  readonly ids: readonly string[];
}

const id = /\b[EWMSG][1-9]\d?\b/g;
/** Where a title carries ids: in front, or alone between parentheses. Elsewhere S3 is a kind of store. */
const carriers = /^(?:[EWMSG][1-9]\d?[ ,/-]*)+(?=:|$)|\((?:[EWMSG][1-9]\d?(?:, | and | )?)+\)/g;
const call = /\b(?:test|describe|\w+AtEach\w+)\(\s*("(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`)/g;

/** All titles of tests that carry a promise's id, in the order of their files. */
export function testTitles(root: string): TestTitle[] {
  return ["src", "test"]
    .flatMap((folder) =>
      readdirSync(join(root, folder), { recursive: true, encoding: "utf8" }).map(
        (name) => `${folder}/${name}`,
      ),
    )
    .filter((name) => /\.test\.ts$|^test\/conformance\/[^/]+\.ts$/.test(name))
    .sort()
    .flatMap((file) => titlesOf(file, readFileSync(join(root, file), "utf8")));
}

function titlesOf(file: string, text: string): TestTitle[] {
  return [...text.matchAll(call)].flatMap((match) => {
    const title = (match[1] ?? "")
      .slice(1, -1)
      .replaceAll('\\"', '"')
      .replaceAll(/\$\{[^}]*\}/g, "…");
    const ids = [...new Set(title.match(carriers)?.join(" ").match(id) ?? [])];
    return ids.length === 0 ? [] : [{ file, title, ids }];
  });
}

const shownMax = 6;

/** The document with its third column filled, and the promises that tests carry without a row, or rows without a test. */
export function fillGuarantees(
  document: string,
  titles: readonly TestTitle[],
): { readonly text: string; readonly withoutRow: string[]; readonly withoutTest: string[] } {
  const rows = new Set<string>();
  const withoutTest: string[] = [];
  const text = document
    .split("\n")
    .map((line) => {
      const [, row, promise] = /^\| ([EWMSG][1-9]\d?) \| (.*?) \| .*\|$/.exec(line) ?? [];
      if (row === undefined || promise === undefined) return line;
      rows.add(row);
      const own = titles.filter(({ ids }) => ids.includes(row));
      if (own.length === 0) withoutTest.push(row);
      return `| ${row} | ${promise} | ${shown(own)} |`;
    })
    .join("\n");
  const withoutRow = [...new Set(titles.flatMap(({ ids }) => ids))].filter((one) => !rows.has(one)).sort();
  return { text, withoutRow, withoutTest };
}

function shown(own: readonly TestTitle[]): string {
  // One of each file first, so that every file that shows a promise is named.
  const files = Map.groupBy(own, ({ file }) => file);
  const turns = [...files.values()].flatMap((tests) => tests.map((test, turn) => ({ test, turn })));
  const first = turns.sort((a, b) => a.turn - b.turn).slice(0, shownMax);
  const texts = first.map(({ test }) => `${test.title.replaceAll("|", "\\|")} (\`${test.file}\`)`);
  const more = own.length - first.length;
  return [...texts, ...(more > 0 ? [`and ${more} more`] : [])].join("<br>") || "–";
}
