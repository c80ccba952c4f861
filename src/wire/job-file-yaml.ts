import {
  type Document,
  isAlias,
  isMap,
  isNode,
  isScalar,
  isSeq,
  type LineCounter,
  type Node,
  parseDocument,
  visit,
  type YAMLError,
} from "yaml";
import type { FieldError } from "./holdfast-error.ts";

type Read =
  | { readonly ok: true; readonly value: unknown; readonly document: Document.Parsed }
  | { readonly ok: false; readonly problems: readonly FieldError[] };

/** Aliases are allowed for what people use them for; more would only be a way to make a small file huge. */
const aliasesMax = 100;
const problemsMax = 20;

/** Read one document of YAML's core schema, refusing what only surprises people in a job file. */
export function readDocument(text: string, lines: LineCounter): Read {
  const document = parseDocument(text, {
    version: "1.2",
    merge: false,
    // Looked for below: the parser compares every key with every other one.
    uniqueKeys: false,
    prettyErrors: false,
    lineCounter: lines,
  });
  if (document.directives.yaml.version !== "1.2") {
    return { ok: false, problems: [problem(lines, 0, "the file is YAML 1.2; remove the `%YAML` line")] };
  }
  // What follows the first syntax error is mostly its consequence.
  const [syntax] = document.errors;
  if (syntax !== undefined) {
    return { ok: false, problems: [problem(lines, syntax.pos[0], syntaxMessage(syntax))] };
  }
  const surprises = nodeProblems(document, lines);
  if (surprises.length > 0) return { ok: false, problems: surprises };
  try {
    return { ok: true, value: document.toJS({ maxAliasCount: aliasesMax }), document };
  } catch (error) {
    if (!(error instanceof ReferenceError || error instanceof RangeError)) throw error;
    const message = "the aliases of this file make it too large";
    return { ok: false, problems: [problem(lines, 0, message)] };
  }
}

function nodeProblems(document: Document.Parsed, lines: LineCounter): FieldError[] {
  const problems: FieldError[] = [];
  const blame = (node: Node, message: string) => {
    problems.push(problem(lines, node.range?.[0] ?? 0, message));
    return problems.length >= problemsMax ? visit.BREAK : undefined;
  };
  visit(document, {
    Map: (_, map) => {
      const seen = new Set<string>();
      for (const { key } of map.items) {
        if (!isScalar(key)) {
          if (isNode(key)) return blame(key, "a field's name must be plain text");
          continue;
        }
        const name = keyText(key.value);
        if (seen.has(name)) return blame(key, `the field \`${name.slice(0, 64)}\` is there twice`);
        seen.add(name);
      }
      return tagProblem(map, blame);
    },
    Alias: (_, alias) => {
      const target = alias.resolve(document);
      if (target === undefined) return blame(alias, `the alias \`*${alias.source}\` has no anchor before it`);
      const at = alias.range?.[0] ?? 0;
      const [start, , end] = target.range ?? [0, 0, 0];
      return start <= at && at < end
        ? blame(alias, `the alias \`*${alias.source}\` holds itself`)
        : undefined;
    },
    Scalar: (_, scalar) => tagProblem(scalar, blame),
    Seq: (_, list) => tagProblem(list, blame),
  });
  return problems;
}

function tagProblem<Blame>(node: Node, blame: (node: Node, message: string) => Blame): Blame | undefined {
  return node.tag === undefined ? undefined : blame(node, "tags such as `!name` are not allowed");
}

function syntaxMessage(error: YAMLError): string {
  // oxlint-disable-next-line typescript/switch-exhaustiveness-check -- The parser words the other codes itself.
  switch (error.code) {
    case "MULTIPLE_DOCS":
      return "the file holds more than one document; keep one job in a file";
    case "TAB_AS_INDENT":
      return "a tab can't indent; use spaces";
    case "BLOCK_AS_IMPLICIT_KEY":
    case "MULTILINE_IMPLICIT_KEY":
      return "the structure is not clear here; check the indentation, and put a value that contains `: ` in quotes";
    case "RESOURCE_EXHAUSTION":
      return "the file is nested too deeply";
    default:
      return error.message.replaceAll(/\s+/g, " ").slice(0, 200);
  }
}

function problem(lines: LineCounter, offset: number, message: string): FieldError {
  const { line, col } = lines.linePos(offset);
  return { pointer: "", message, line: Math.max(line, 1), column: Math.max(col, 1) };
}

/** Where a JSON pointer leads in the file. What is missing there is placed at the nearest thing that exists. */
export function placeOf(
  document: Document.Parsed,
  lines: LineCounter,
  pointer: string,
  at: "name" | "value",
): { readonly line: number; readonly column: number } {
  const tokens = pointer.split("/").slice(1);
  let node: unknown = resolved(document, document.contents);
  let place: unknown = node;
  for (const [index, token] of tokens.entries()) {
    const next = child(node, token.replaceAll("~1", "/").replaceAll("~0", "~"));
    if (next === undefined) break;
    node = resolved(document, next.value);
    const last = index === tokens.length - 1;
    // The name of a thing shows the place better than the first line of its content.
    const byName = last ? at === "name" : isMap(node) && next.name !== undefined;
    place = byName ? (next.name ?? next.value) : (next.value ?? next.name);
  }
  const offset = isNode(place) ? (place.range?.[0] ?? 0) : 0;
  const { line, col } = lines.linePos(offset);
  return { line: Math.max(line, 1), column: Math.max(col, 1) };
}

function child(
  node: unknown,
  token: string,
): { readonly name?: unknown; readonly value: unknown } | undefined {
  if (isMap(node)) {
    const pair = node.items.find(({ key }) => isScalar(key) && keyText(key.value) === token);
    return pair === undefined ? undefined : { name: pair.key, value: pair.value };
  }
  if (!isSeq(node)) return undefined;
  const item = node.items[Number(token)];
  return item === undefined ? undefined : { value: item };
}

/** A key as it is named in the read value, where `1` and `null` are texts too. */
function keyText(value: unknown): string {
  if (typeof value === "string") return value;
  return typeof value === "number" || typeof value === "boolean" ? `${value}` : "";
}

function resolved(document: Document.Parsed, node: unknown): unknown {
  return isAlias(node) ? node.resolve(document) : node;
}
