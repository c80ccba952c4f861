/** How many rows a statement gives: exactly one, at most one, any number, or only their count. */
export type Cardinality = "one" | "maybe" | "many" | "exec";

/**
 * How one parameter travels to PostgreSQL. The driver turns strings, numbers, bigints, booleans, Buffers and
 * arrays of them into text by itself (`plain`); the others look like something else in TypeScript than they
 * are in SQL: an Instant is a bigint, and a JSON value may be a string or null.
 */
export type Codec = "plain" | "instant" | "instants" | "json" | "json_or_null";

/**
 * One named statement of a `.sql` file. The `.sql.ts` beside that file is generated (`npm run generate`) from
 * what PostgreSQL says of the statement prepared against the migrated schema, so parameters and rows have the
 * database's own types, and a test fails when the two drift apart.
 */
export interface Statement<Params, Row, C extends Cardinality> {
  /** `file.statement`: the name under which it is prepared, and by which errors and metrics name it. */
  readonly name: string;
  readonly text: string;
  /** The parameters' names in the order of `$1`, `$2`, …. */
  readonly parameters: readonly (keyof Params & string)[];
  /** How each of them is encoded (`encodeParameters`), in the same order. */
  readonly codecs: readonly Codec[];
  readonly cardinality: C;
  /** Never set: carries the row type. */
  readonly row?: Row;
}

export type Result<Row, C extends Cardinality> = C extends "one"
  ? Row
  : C extends "maybe"
    ? Row | undefined
    : C extends "many"
      ? Row[]
      : number;

export function statement<Params, Row, C extends Cardinality>(
  name: string,
  cardinality: C,
  parameters: readonly (keyof Params & string)[],
  codecs: readonly Codec[],
  text: string,
): Statement<Params, Row, C> {
  return { name, cardinality, parameters, codecs, text };
}
