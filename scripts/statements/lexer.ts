/** One piece of SQL text. Joined, the tokens are the text again. */
export interface Token {
  readonly kind:
    | "space"
    | "line_comment"
    | "block_comment"
    | "string"
    | "dollar_string"
    | "quoted_identifier"
    | "word"
    | "number"
    | "parameter"
    | "positional"
    | "semicolon"
    | "symbol";
  readonly text: string;
  /** From 1. */
  readonly line: number;
}

export class SqlSyntaxError extends Error {
  override readonly name = "SqlSyntaxError";
  readonly line: number;
  constructor(line: number, message: string) {
    super(message);
    this.line = line;
  }
}

const word = /[A-Za-z_\u0080-\uffff][\w$\u0080-\uffff]*/y;
const rules: readonly (readonly [Token["kind"], RegExp])[] = [
  ["space", /\s+/y],
  ["line_comment", /--[^\n]*/y],
  // Only where `e` stands alone: `the'x'` is a word and a plain string.
  ["string", /[eE]'(?:[^'\\]|\\[\s\S]|'')*'/y],
  ["string", /'(?:[^']|'')*'/y],
  ["quoted_identifier", /"(?:[^"]|"")*"/y],
  ["word", word],
  ["number", /\d[\w.]*/y],
  // The tag has no dollar, so `$a$b$a$` ends where it should.
  ["dollar_string", /\$((?:[A-Za-z_\u0080-\uffff][\w\u0080-\uffff]*)?)\$[\s\S]*?\$\1\$/y],
  ["positional", /\$\d+/y],
  ["symbol", /::|:=/y],
  ["parameter", /:[A-Za-z_]\w*/y],
  ["semicolon", /;/y],
];

/**
 * Split SQL as PostgreSQL's own scanner would, as far as it takes to know what is code and what is text
 * (`standard_conforming_strings` on). An array slice by column names needs a space: `a[low : high]`.
 */
export function lex(sql: string): Token[] {
  const tokens: Token[] = [];
  let at = 0;
  let line = 1;
  while (at < sql.length) {
    const token = sql.startsWith("/*", at) ? blockComment(sql, at, line) : match(sql, at, line);
    tokens.push(token);
    at += token.text.length;
    line += token.text.split("\n").length - 1;
  }
  return tokens;
}

function match(sql: string, at: number, line: number): Token {
  for (const [kind, pattern] of rules) {
    pattern.lastIndex = at;
    const text = pattern.exec(sql)?.[0];
    if (text !== undefined) return { kind, text, line };
  }
  const text = sql.charAt(at);
  if (text === "'") throw new SqlSyntaxError(line, "a string is not closed");
  if (text === '"') throw new SqlSyntaxError(line, "a quoted identifier is not closed");
  if (text === "$") throw new SqlSyntaxError(line, "a dollar-quoted string is not closed");
  return { kind: "symbol", text, line };
}

/** They nest. */
function blockComment(sql: string, start: number, line: number): Token {
  const edge = /\/\*|\*\//g;
  edge.lastIndex = start;
  let depth = 0;
  for (let found = edge.exec(sql); found !== null; found = edge.exec(sql)) {
    depth += found[0] === "/*" ? 1 : -1;
    if (depth === 0) return { kind: "block_comment", text: sql.slice(start, edge.lastIndex), line };
  }
  throw new SqlSyntaxError(line, "a comment is not closed");
}
