import { type CustomTypesConfig, types } from "pg";
import { formatInstant, type Instant, instant, parseInstant } from "../time.ts";
import type { Cardinality, Codec, Statement } from "./statement.ts";

/** A type of the server, as TypeScript sees it. The generator and the driver read the same table. */
export interface ServerType {
  readonly oid: number;
  readonly arrayOid: number | null;
  readonly typescript: string;
  readonly parse: (text: string) => unknown;
}

const same = (text: string) => text;
// The driver names scalar types only, and takes any oid.
const driverParser = types.getTypeParser as (oid: number, format: "text") => (text: string) => unknown;

/**
 * Only what loses nothing: `numeric` and dates stay text, and `interval` and `timestamp without time zone`
 * are missing on purpose (durations are bigint microseconds, times have a zone).
 */
export const serverTypes: readonly ServerType[] = [
  { oid: 16, arrayOid: 1000, typescript: "boolean", parse: (text) => text === "t" },
  { oid: 17, arrayOid: 1001, typescript: "Buffer", parse: driverParser(17, "text") },
  { oid: 18, arrayOid: 1002, typescript: "string", parse: same }, // "char"
  { oid: 19, arrayOid: 1003, typescript: "string", parse: same }, // name
  { oid: 20, arrayOid: 1016, typescript: "bigint", parse: BigInt }, // int8
  { oid: 21, arrayOid: 1005, typescript: "number", parse: Number }, // int2
  { oid: 23, arrayOid: 1007, typescript: "number", parse: Number }, // int4
  { oid: 25, arrayOid: 1009, typescript: "string", parse: same }, // text
  { oid: 26, arrayOid: 1028, typescript: "number", parse: Number }, // oid
  { oid: 114, arrayOid: 199, typescript: "unknown", parse: JSON.parse },
  { oid: 700, arrayOid: 1021, typescript: "number", parse: Number }, // float4
  { oid: 701, arrayOid: 1022, typescript: "number", parse: Number }, // float8
  { oid: 869, arrayOid: 1041, typescript: "string", parse: same }, // inet
  { oid: 1042, arrayOid: 1014, typescript: "string", parse: same }, // char(n)
  { oid: 1043, arrayOid: 1015, typescript: "string", parse: same }, // varchar
  { oid: 1082, arrayOid: 1182, typescript: "string", parse: same }, // date
  { oid: 1184, arrayOid: 1185, typescript: "Instant", parse: parseInstant }, // timestamptz
  { oid: 1700, arrayOid: 1231, typescript: "string", parse: same }, // numeric
  { oid: 2205, arrayOid: 2210, typescript: "string", parse: same }, // regclass
  { oid: 2278, arrayOid: null, typescript: "undefined", parse: () => undefined }, // void
  { oid: 2950, arrayOid: 2951, typescript: "string", parse: same }, // uuid
  { oid: 3802, arrayOid: 3807, typescript: "unknown", parse: JSON.parse }, // jsonb
  { oid: 5038, arrayOid: 2949, typescript: "string", parse: same }, // pg_snapshot
  { oid: 5069, arrayOid: 271, typescript: "bigint", parse: BigInt }, // xid8
];

const parsers = new Map<number, (text: string) => unknown>();
for (const type of serverTypes) {
  parsers.set(type.oid, type.parse);
  if (type.arrayOid === null) continue;
  // The driver's own reader of text[] knows the quoting; each element is then read as its own type.
  const elements = driverParser(1009, "text");
  parsers.set(type.arrayOid, (text) => (elements(text) as (string | null)[]).map(nullable(type.parse)));
}

function nullable(parse: (text: string) => unknown): (text: string | null) => unknown {
  return (text) => (text === null ? null : parse(text));
}

/**
 * The `types` of every pool and client. Connections must run with `TimeZone=UTC` and `DateStyle=ISO`:
 * `parseInstant` refuses anything else. Types that aren't listed (enums) arrive as text.
 */
export const typeParsers: CustomTypesConfig = {
  // The declared overloads also cover binary results, which are never asked for.
  getTypeParser: ((oid: number) => parsers.get(oid) ?? same) as typeof types.getTypeParser,
};

/** The values for `$1`, `$2`, … in order. Refuses a parameter that is missing, so that it can't become NULL. */
export function encodeParameters<Params, Row, C extends Cardinality>(
  statement: Statement<Params, Row, C>,
  params: Params,
): unknown[] {
  return statement.parameters.map((name, index) => {
    const value: unknown = params[name];
    if (value === undefined) throw new TypeError(`${statement.name}: the parameter ${name} is missing`);
    return encode(statement.codecs[index] ?? "plain", value);
  });
}

function encode(codec: Codec, value: unknown): unknown {
  switch (codec) {
    case "instant":
      return value === null ? null : encodeInstant(value);
    case "instants":
      return Array.isArray(value) ? value.map((item) => (item === null ? null : encodeInstant(item))) : value;
    case "json":
      return JSON.stringify(value);
    case "json_or_null":
      // Where SQL NULL is allowed, null means that; a column that must tell the two apart is NOT NULL.
      return value === null ? null : JSON.stringify(value);
    case "plain":
      return Array.isArray(value) ? arrayText(value) : value;
    default:
      return codec satisfies never;
  }
}

/** The driver writes arrays, too, at several times the cost; what this does not know is left to it. */
function arrayText(values: readonly unknown[]): unknown {
  let text = "";
  for (const value of values) {
    if (text !== "") text += ",";
    if (typeof value === "string") text += quoted(value);
    else if (typeof value === "number" || typeof value === "bigint") text += String(value);
    else return values;
  }
  return `{${text}}`;
}

const quoted = (text: string) =>
  `"${text.includes('"') || text.includes("\\") ? text.replaceAll(/["\\]/g, "\\$&") : text}"`;

const firstInstant = -62_135_596_800_000_000n; // 0001-01-01
const lastInstant = 253_402_300_799_999_999n; // 9999-12-31, the last that RFC 3339 can write

function encodeInstant(value: unknown): string {
  if (typeof value !== "bigint" || value < firstInstant || value > lastInstant) {
    throw new RangeError(`not an instant that can be stored: ${String(value)}`);
  }
  const at: Instant = instant(value);
  return formatInstant(at);
}
