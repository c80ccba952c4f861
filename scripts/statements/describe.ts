import type { Client, Connection, Submittable } from "pg";
import { serverTypes } from "../../src/core/postgres/codecs.ts";
import type { Codec } from "../../src/core/postgres/statement.ts";
import type { ParsedStatement } from "./parser.ts";

/** A statement with the types that the server gave to its parameters and columns. */
export interface DescribedStatement extends Omit<ParsedStatement, "parameters"> {
  readonly parameters: readonly {
    readonly name: string;
    readonly typescript: string;
    readonly codec: Codec;
  }[];
  readonly columns: readonly { readonly name: string; readonly typescript: string }[];
}

export class StatementError extends Error {
  override readonly name = "StatementError";
}

interface Field {
  readonly name: string;
  readonly tableID: number;
  readonly columnID: number;
  readonly dataTypeID: number;
}

/** Ask the server what a statement takes and gives. Nothing is executed. */
export async function describe(client: Client, statement: ParsedStatement): Promise<DescribedStatement> {
  const { parameterTypes, fields } = await prepare(client, statement.text);
  const types = await baseTypes(client, [...parameterTypes, ...fields.map((field) => field.dataTypeID)]);
  const notNull = await notNullColumns(client, statement, fields);

  const names = fields.map((field) => field.name);
  for (const declared of statement.declared.keys()) {
    if (!names.includes(declared)) throw new StatementError(`there is no column "${declared}" to mark`);
  }
  const columns = fields.map((field) => {
    if (!/^[a-z_][a-z0-9_]*$/.test(field.name))
      throw new StatementError(`name the column ${field.name}: as …`);
    if (names.indexOf(field.name) !== names.lastIndexOf(field.name)) {
      throw new StatementError(`two columns are named ${field.name}`);
    }
    const type = typescriptOf(types.get(field.dataTypeID), field.name, "column");
    const declared = statement.declared.get(field.name);
    const required = declared === undefined ? notNull.has(columnKey(field)) : declared === "required";
    return { name: field.name, typescript: withNull(type, !required) };
  });
  if (columns.length === 0 && statement.cardinality !== "exec") {
    throw new StatementError(`:${statement.cardinality} gives no column; use :exec, or returning`);
  }
  const parameters = statement.parameters.map(({ name, nullable }, index) => {
    const type = types.get(parameterTypes[index] ?? 0);
    const typescript = typescriptOf(type, name, "parameter");
    return { name, typescript: withNull(typescript, nullable), codec: codecOf(type, name, nullable) };
  });
  return { ...statement, parameters, columns };
}

interface BaseType {
  readonly oid: number;
  readonly name: string;
  readonly isEnum: boolean;
}

function typescriptOf(type: BaseType | undefined, name: string, what: "column" | "parameter"): string {
  if (type?.isEnum === true) return "string";
  const scalar = serverTypes.find((known) => known.oid === type?.oid);
  if (scalar !== undefined) return scalar.typescript;
  const element = serverTypes.find((known) => known.arrayOid === type?.oid);
  if (element === undefined) {
    throw new StatementError(
      `the ${what} ${name} has type ${type?.name ?? "unknown"}, which codecs.ts lacks`,
    );
  }
  return what === "column" ? `${element.typescript}[]` : `readonly ${element.typescript}[]`;
}

function withNull(typescript: string, nullable: boolean): string {
  return nullable && typescript !== "unknown" && typescript !== "undefined"
    ? `${typescript} | null`
    : typescript;
}

function codecOf(type: BaseType | undefined, name: string, nullable: boolean): Codec {
  switch (type?.name ?? "unknown") {
    case "timestamp with time zone":
      return "instant";
    case "timestamp with time zone[]":
      return "instants";
    case "json":
    case "jsonb":
      return nullable ? "json_or_null" : "json";
    case "json[]":
    case "jsonb[]":
      throw new StatementError(`send the parameter ${name} as one jsonb array`);
    default:
      return "plain";
  }
}

/** Domains are read as what they stand on. */
async function baseTypes(client: Client, oids: readonly number[]): Promise<ReadonlyMap<number, BaseType>> {
  const { rows } = await client.query<{ asked: number; oid: number; name: string; is_enum: boolean }>(
    `with recursive base(asked, oid) as (
       select oid, oid from pg_type where oid = any($1::oid[])
       union all
       select base.asked, pg_type.typbasetype from base join pg_type using (oid) where pg_type.typtype = 'd'
     )
     select asked, oid, format_type(oid, null) as name, typtype = 'e' as is_enum
     from base join pg_type using (oid) where typtype <> 'd'`,
    [oids],
  );
  return new Map(rows.map(({ asked, oid, name, is_enum }) => [asked, { oid, name, isEnum: is_enum }]));
}

function columnKey(field: { readonly tableID: number; readonly columnID: number }): string {
  return `${String(field.tableID)}.${String(field.columnID)}`;
}

/** Columns that come straight from a NOT NULL column of a relation that no outer join can leave empty. */
async function notNullColumns(
  client: Client,
  statement: ParsedStatement,
  fields: readonly Field[],
): Promise<ReadonlySet<string>> {
  const { rows } = await client.query<{ table: number; column: number }>(
    `select attrelid as table, attnum::int4 as column from pg_attribute
     where attrelid = any($1::oid[]) and attnum > 0 and attnotnull`,
    [fields.map((field) => field.tableID)],
  );
  const outer = await client.query<{ table: number | null }>(
    "select to_regclass(name)::oid as table from unnest($1::text[]) as name",
    [statement.outerJoined.map((name) => name ?? "")],
  );
  const emptied = new Set(outer.rows.map((row) => row.table));
  if (emptied.has(null)) return new Set();
  return new Set(
    rows
      .filter((row) => !emptied.has(row.table))
      .map((row) => columnKey({ tableID: row.table, columnID: row.column })),
  );
}

interface Prepared {
  readonly parameterTypes: readonly number[];
  readonly fields: readonly Field[];
}

/** Parse and Describe of the extended protocol, under the unnamed statement. */
function prepare(client: Client, text: string): Promise<Prepared> {
  return new Promise((resolve, reject) => {
    client.query(new Preparation(text, resolve, reject));
  });
}

/** What the driver calls back for whatever has been submitted: its protocol for custom queries. */
class Preparation implements Submittable {
  private readonly text: string;
  private readonly resolve: (prepared: Prepared) => void;
  private readonly reject: (error: Error) => void;
  private parameterTypes: readonly number[] = [];
  private fields: readonly Field[] = [];

  constructor(text: string, resolve: (prepared: Prepared) => void, reject: (error: Error) => void) {
    this.text = text;
    this.resolve = resolve;
    this.reject = reject;
  }

  submit(connection: Connection): void {
    connection.once("parameterDescription", this.handleParameters);
    connection.parse({ name: "", text: this.text, types: [] }, true);
    connection.describe({ type: "S", name: "" }, true);
    connection.sync();
  }

  private readonly handleParameters = (message: { readonly dataTypeIDs: readonly number[] }): void => {
    this.parameterTypes = message.dataTypeIDs;
  };

  handleRowDescription(message: { readonly fields: readonly Field[] }): void {
    this.fields = message.fields;
  }

  handleError(error: Error, connection: Connection): void {
    connection.removeListener("parameterDescription", this.handleParameters);
    this.reject(error);
  }

  handleReadyForQuery(): void {
    this.resolve({ parameterTypes: this.parameterTypes, fields: this.fields });
  }
}
