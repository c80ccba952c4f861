import { Type } from "typebox";
import {
  Duration,
  EnvironmentName,
  ImageName,
  Labels,
  Name,
  PhaseName,
  Ref,
  Repository,
  SecretKey,
  Uuid,
} from "./job.ts";

/** The patterns of the job schema, in words. A pattern that is not here is shown as it is. */
const words = new Map<string, string>([
  [patternOf(Name), "1 to 63 lower-case letters, digits and inner hyphens"],
  [patternOf(PhaseName), "1 to 32 lower-case letters, digits and inner hyphens"],
  [patternOf(Duration), "a duration such as `90s`, `10m` or `1h30m`"],
  [
    patternOf(EnvironmentName),
    "letters, digits and underscores, at most 128, not beginning with a digit or `HOLDFAST_`",
  ],
  [patternOf(Uuid), "a whole id: 36 characters of `0`-`9`, `a`-`f` and hyphens"],
  [patternOf(SecretKey), "letters, digits and `.`, `_`, `-`, at most 128, beginning with a letter or digit"],
  [patternOf(Repository), "an address or path without control characters that does not begin with `-`"],
  [patternOf(Ref), "a branch, tag or commit without spaces that does not begin with `-`"],
  [patternOf(ImageName), "an image name without spaces"],
  [Object.keys(Labels.patternProperties)[0] ?? "", "1 to 63 letters, digits and inner `.`, `_`, `-`, `/`"],
]);

export function patternWords(pattern: string): string {
  return words.get(pattern) ?? `text that matches ${pattern}`;
}

/** What a schema allows, so that it reads well after "must be". */
export function expectation(schema: Type.TSchema): string {
  if (Type.IsLiteral(schema)) return `\`${schema.const}\``;
  if (Type.IsUnion(schema)) return choiceWords(schema);
  if (Type.IsObject(schema)) return `a mapping with ${Object.keys(schema.properties).join(", ")}`;
  if (Type.IsRecord(schema)) return "a mapping of names to values";
  if (Type.IsArray(schema)) return Type.IsString(schema.items) ? "a list of texts" : "a list";
  if (Type.IsInteger(schema)) return `a whole number${range(schema)}`;
  if (Type.IsString(schema)) return stringWords(schema);
  return "valid";
}

/** A list of the same is no choice of its own: it is how a query says several. */
function choiceWords(schema: Type.TUnion): string {
  const choices = alternatives(schema);
  const plain = choices.filter((choice) => !Type.IsArray(choice));
  const said = [...new Set((plain.length > 0 ? plain : choices).map(expectation))];
  return said.length === 1 ? said.join() : `one of ${said.join(", ")}`;
}

function alternatives(schema: Type.TSchema): readonly Type.TSchema[] {
  return Type.IsUnion(schema) ? schema.anyOf.flatMap(alternatives) : [schema];
}

const anyText = "^[^\\u0000]*$";

function stringWords(schema: Type.TString): string {
  const { pattern, minLength, description } = schema as {
    readonly pattern?: string;
    readonly minLength?: number;
    readonly description?: string;
  };
  const known = pattern === undefined ? undefined : words.get(pattern);
  if (known !== undefined) return known;
  if (description !== undefined) return description;
  if (pattern !== undefined && pattern !== anyText) return patternWords(pattern);
  return minLength === undefined
    ? "text without NUL characters"
    : "text that is not empty, without NUL characters";
}

function range(schema: Type.TSchema): string {
  const { minimum, maximum } = schema as { readonly minimum?: number; readonly maximum?: number };
  if (minimum === undefined || maximum === undefined) return "";
  return ` from ${minimum} to ${maximum}`;
}

/** A found value, short and on one line. */
export function describeValue(value: unknown): string {
  if (value === null || value === undefined) return "nothing";
  if (Array.isArray(value)) return "a list";
  if (typeof value === "string") {
    return value === "" ? "empty text" : JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value);
  }
  if (typeof value === "number") return `the number ${value}`;
  return typeof value === "boolean" ? `\`${value}\`` : "a mapping";
}

function patternOf(schema: Type.TString): string {
  return String((schema as { readonly pattern?: string }).pattern);
}
