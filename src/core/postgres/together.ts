import { escapeLiteral } from "pg";
import { encodeParameters } from "./codecs.ts";
import type { Cardinality, Statement } from "./statement.ts";

/**
 * Statements that are sent as one text, so that they cost one exchange instead of one each. They run in order, each
 * with a snapshot of its own, and the first that fails ends it. Without parameters the driver takes several, so each
 * value stands in its place as a literal. Not prepared: for what is short and always sent together.
 */
export function together(...statements: readonly string[]): string {
  return statements.join("; ");
}

/** The statement's text with its parameters as quoted literals of no type, as a parameter has none. */
export function inlined<Params, Row, C extends Cardinality>(
  statement: Statement<Params, Row, C>,
  params: Params,
): string {
  const values = encodeParameters(statement, params);
  return statement.text.replace(/\$(\d+)/g, (_, place: string) => literal(values[Number(place) - 1]));
}

function literal(value: unknown): string {
  if (value === null) return "null";
  if (typeof value === "string" || typeof value === "bigint") return escapeLiteral(String(value));
  throw new TypeError(`a ${typeof value} is not inlined`);
}
