import type { Cardinality } from "../../src/core/postgres/statement.ts";
import { lex, SqlSyntaxError, type Token } from "./lexer.ts";

/** One named statement, as it stands in its file. */
export interface ParsedStatement {
  readonly name: string;
  readonly cardinality: Cardinality;
  /** The comment lines around the name line. */
  readonly doc: readonly string[];
  /** In the order of `$1`, `$2`, …. */
  readonly parameters: readonly { readonly name: string; readonly nullable: boolean }[];
  /** What is sent: positional parameters, no comments, no `!` and `?` in aliases. */
  readonly text: string;
  /** Columns whose alias said whether they can be null: `as "total!"`, `as "parent?"`. */
  readonly declared: ReadonlyMap<string, "required" | "nullable">;
  /** What stands after `left join` and the like: a relation's name, or null for anything else. */
  readonly outerJoined: readonly (string | null)[];
  readonly line: number;
}

const nameLine = /^-- name: ([a-z][A-Za-z0-9]*) :(one|maybe|many|exec)$/;
const nullLine = /^-- null: ([a-z_]\w*(?:, [a-z_]\w*)*)$/;

/** Read a file of named statements. Throws SqlSyntaxError with the line of what is wrong. */
export function parseStatements(source: string): ParsedStatement[] {
  const tokens = lex(source.replaceAll("\r\n", "\n"));
  const starts = tokens.flatMap((token, index) => (isNameLine(token) ? [index] : []));
  const statements = starts.map((start, nth) => {
    const next = starts[nth + 1];
    const end = next === undefined ? tokens.length : docStart(tokens, next);
    return parseBlock(tokens.slice(docStart(tokens, start), start), tokens.slice(start, end));
  });
  const stray = tokens
    .slice(0, starts[0] ?? tokens.length)
    .find((token) => token.kind !== "space" && !isComment(token));
  if (stray !== undefined)
    throw new SqlSyntaxError(stray.line, "SQL stands before the first `-- name:` line");
  const seen = new Set<string>();
  for (const { name, line } of statements) {
    if (seen.has(name)) throw new SqlSyntaxError(line, `the name ${name} is used twice`);
    seen.add(name);
  }
  return statements;
}

function isNameLine(token: Token): boolean {
  return token.kind === "line_comment" && /^--\s*name\s*:/i.test(token.text);
}

function isComment(token: Token): boolean {
  return token.kind === "line_comment" || token.kind === "block_comment";
}

/** The first of the comment lines that stand directly above the token: no empty line, no code between. */
function docStart(tokens: readonly Token[], index: number): number {
  let start = index;
  for (let at = index - 1; at >= 0; at -= 2) {
    const space = tokens[at];
    const comment = tokens[at - 1];
    if (space?.kind !== "space" || !/^\n[ \t]*$/.test(space.text)) break;
    if (comment?.kind !== "line_comment" || !startsLine(tokens, at - 1)) break;
    start = at - 1;
  }
  return start;
}

function startsLine(tokens: readonly Token[], index: number): boolean {
  const before = tokens[index - 1];
  return before === undefined || before.text.includes("\n");
}

function parseBlock(above: readonly Token[], block: readonly Token[]): ParsedStatement {
  const [head, ...rest] = block;
  const line = head?.line ?? 1;
  const found = nameLine.exec(head?.text ?? "");
  if (found === null) {
    throw new SqlSyntaxError(line, "write `-- name: camelCase :one` (or :maybe, :many, :exec)");
  }
  const [, name = "", cardinality = ""] = found;
  const codeAt = rest.findIndex((token) => token.kind !== "space" && !isComment(token));
  if (codeAt === -1) throw new SqlSyntaxError(line, `${name} has no SQL`);

  const comments = [...above, ...rest.slice(0, codeAt)].filter((token) => token.kind === "line_comment");
  const nullable = comments.flatMap(nullNames);
  const doc = comments
    .filter((token) => !isNullLine(token))
    .map((token) => token.text.replace(/^-- ?/, "").trimEnd());

  const code = withoutEnd(rest.slice(codeAt), name);
  const parameters = parameterNames(code);
  const unknown = nullable.find((parameter) => !parameters.includes(parameter));
  if (unknown !== undefined) throw new SqlSyntaxError(line, `${name} has no parameter :${unknown}`);
  return {
    name,
    cardinality: cardinality as Cardinality, // the pattern admits nothing else
    doc,
    parameters: parameters.map((parameter) => ({ name: parameter, nullable: nullable.includes(parameter) })),
    text: render(code, parameters),
    declared: declaredColumns(code),
    outerJoined: outerJoined(code),
    line,
  };
}

function isNullLine(token: Token): boolean {
  return /^--\s*null\s*:/i.test(token.text);
}

function nullNames(token: Token): string[] {
  if (!isNullLine(token)) return [];
  const names = nullLine.exec(token.text)?.[1];
  if (names === undefined) throw new SqlSyntaxError(token.line, "write `-- null: first, second`");
  return names.split(", ");
}

/** Up to the semicolon, after which only comments may follow: a prepared statement is one statement. */
function withoutEnd(code: readonly Token[], name: string): Token[] {
  const end = code.findIndex((token) => token.kind === "semicolon");
  if (end === -1) {
    throw new SqlSyntaxError(code[0]?.line ?? 1, `${name} does not end with a semicolon`);
  }
  const more = code.slice(end + 1).find((token) => token.kind !== "space" && !isComment(token));
  if (more !== undefined) throw new SqlSyntaxError(more.line, `${name} is more than one statement`);
  return code.slice(0, end);
}

function parameterNames(code: readonly Token[]): string[] {
  const names = new Set<string>();
  for (const token of code) {
    if (token.kind === "parameter") names.add(token.text.slice(1));
    if (token.kind === "positional") {
      throw new SqlSyntaxError(token.line, `name the parameter ${token.text} (:like_this)`);
    }
  }
  return [...names];
}

function render(code: readonly Token[], parameters: readonly string[]): string {
  let text = "";
  for (const token of code) {
    if (token.kind === "parameter") text += `$${String(parameters.indexOf(token.text.slice(1)) + 1)}`;
    else if (token.kind === "quoted_identifier") text += token.text.replace(/[!?]"$/, '"');
    else if (token.kind === "block_comment") text += " ";
    else if (token.kind === "line_comment") text = text.replace(/(?:^|\n)?[ \t]*$/, "");
    else text += token.text;
  }
  return text.trim();
}

function declaredColumns(code: readonly Token[]): ReadonlyMap<string, "required" | "nullable"> {
  const declared = new Map<string, "required" | "nullable">();
  for (const token of code) {
    const found = token.kind === "quoted_identifier" ? /^"(.+)([!?])"$/.exec(token.text) : null;
    if (found?.[1] === undefined) continue;
    declared.set(found[1], found[2] === "!" ? "required" : "nullable");
  }
  return declared;
}

/**
 * A NOT NULL column of an outer-joined relation can be null in the result, which Describe doesn't say. After
 * `left join` comes that relation; with `right` and `full` it may be any, as after a subquery.
 */
function outerJoined(code: readonly Token[]): (string | null)[] {
  const words = code.filter((token) => token.kind !== "space" && !isComment(token));
  const at = (index: number) => words[index]?.text.toLowerCase() ?? "";
  return words.flatMap((_, index) => {
    if (!["left", "right", "full"].includes(at(index))) return [];
    const join = at(index + 1) === "outer" ? index + 2 : index + 1;
    if (at(join) !== "join") return [];
    if (at(index) !== "left" || words[join + 1]?.kind !== "word") return [null];
    if (at(join + 2) !== ".") return [at(join + 1)];
    return [`${at(join + 1)}.${at(join + 3)}`];
  });
}
