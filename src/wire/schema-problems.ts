import { Type } from "typebox";
import { Check } from "typebox/value";
import { closeName } from "./close-name.ts";
import { describeValue, expectation, patternWords } from "./schema-words.ts";

/** One thing that is wrong at one place. `at` says whether the name or the value there is to blame. */
export interface Problem {
  readonly pointer: string;
  readonly message: string;
  readonly at: "name" | "value";
}

/** One more step of a JSON pointer (RFC 6901). */
export function step(pointer: string, token: string | number): string {
  return `${pointer}/${String(token).replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

/**
 * Why a value does not fit a schema, with one message a place. The validator's own errors are not used: they
 * stop after a few, and they say the same thing several times over ("schema is false"). What is a leaf for
 * people (a text, a number, a choice) is still judged by the validator, so that the two can't disagree.
 */
export function schemaProblems(schema: Type.TSchema, value: unknown, pointer = ""): Problem[] {
  if (Type.IsObject(schema)) return objectProblems(schema, value, pointer);
  if (Type.IsRecord(schema)) return recordProblems(schema, value, pointer);
  if (Type.IsArray(schema)) return listProblems(schema, value, pointer);
  return Check(schema, value) ? [] : [{ pointer, message: leafMessage(schema, value), at: "value" }];
}

function objectProblems(schema: Type.TObject, value: unknown, pointer: string): Problem[] {
  if (!isMapping(value)) return [wrongType(schema, value, pointer)];
  const problems: Problem[] = [];
  const known = Object.keys(schema.properties);
  const meant = new Set<string>();
  for (const [name, member] of Object.entries(value)) {
    const property = Object.hasOwn(schema.properties, name) ? schema.properties[name] : undefined;
    if (property !== undefined) {
      problems.push(...schemaProblems(property, member, step(pointer, name)));
      continue;
    }
    const open = known.filter((candidate) => !Object.hasOwn(value, candidate));
    const close = closeName(name, open);
    if (close !== undefined) meant.add(close);
    const hint =
      close === undefined
        ? `; allowed here: ${known.map(quoted).join(", ")}`
        : `; did you mean \`${close}\`?`;
    problems.push({
      pointer: step(pointer, name),
      message: `unknown field ${quoted(name)}${hint}`,
      at: "name",
    });
  }
  for (const name of schema.required ?? []) {
    // A mistyped name has said it already.
    if (Object.hasOwn(value, name) || meant.has(name)) continue;
    const property = schema.properties[name];
    const wanted = property === undefined ? "" : `; it must be ${expectation(property)}`;
    problems.push({
      pointer: step(pointer, name),
      message: `${quoted(name)} is missing${wanted}`,
      at: "value",
    });
  }
  return problems;
}

function recordProblems(schema: Type.TRecord, value: unknown, pointer: string): Problem[] {
  if (!isMapping(value)) return [wrongType(schema, value, pointer)];
  const problems: Problem[] = [];
  const [pattern = "", member] = Object.entries<Type.TSchema>(schema.patternProperties)[0] ?? [];
  const names = new RegExp(pattern, "u");
  const entries = Object.entries(value);
  const { maxProperties } = schema as { readonly maxProperties?: number };
  if (maxProperties !== undefined && entries.length > maxProperties) {
    const message = `must have at most ${maxProperties} entries, found ${entries.length}`;
    return [{ pointer, message, at: "value" }];
  }
  for (const [name, entry] of entries) {
    if (!names.test(name)) {
      const message = `the name ${quoted(name)} is not allowed: it must be ${patternWords(pattern)}`;
      problems.push({ pointer: step(pointer, name), message, at: "name" });
    } else if (member !== undefined) {
      problems.push(...schemaProblems(member, entry, step(pointer, name)));
    }
  }
  return problems;
}

function listProblems(schema: Type.TArray, value: unknown, pointer: string): Problem[] {
  if (!Array.isArray(value)) return [wrongType(schema, value, pointer)];
  const { minItems = 0, maxItems = Infinity } = schema as {
    readonly minItems?: number;
    readonly maxItems?: number;
  };
  if (value.length < minItems || value.length > maxItems) {
    const wanted = value.length < minItems ? `at least ${minItems}` : `at most ${maxItems}`;
    return [{ pointer, message: `must have ${wanted} in its list, found ${value.length}`, at: "value" }];
  }
  return value.flatMap((item, index) => schemaProblems(schema.items, item, step(pointer, index)));
}

function leafMessage(schema: Type.TSchema, value: unknown): string {
  const found = describeValue(value);
  if (Type.IsString(schema)) {
    if (typeof value === "number" || typeof value === "boolean") {
      return `must be text, found ${found}; put it in quotes`;
    }
    if (typeof value !== "string") return `must be ${expectation(schema)}, found ${found}`;
    const { maxLength } = schema as { readonly maxLength?: number };
    if (maxLength !== undefined && value.length > maxLength) {
      return `must be at most ${maxLength} characters long, found ${value.length}`;
    }
  }
  const choices = Type.IsUnion(schema)
    ? schema.anyOf.filter(Type.IsLiteral).map((one) => String(one.const))
    : [];
  const close = typeof value === "string" ? closeName(value, choices) : undefined;
  const hint = close === undefined ? "" : `; did you mean \`${close}\`?`;
  return `must be ${expectation(schema)}, found ${found}${hint}`;
}

function wrongType(schema: Type.TSchema, value: unknown, pointer: string): Problem {
  return { pointer, message: `must be ${expectation(schema)}, found ${describeValue(value)}`, at: "value" };
}

function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const quoted = (name: string): string => `\`${JSON.stringify(name.slice(0, 64)).slice(1, -1)}\``;
