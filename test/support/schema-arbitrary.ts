import fc, { type Arbitrary } from "fast-check";

/** As much of JSON Schema as our documents use. */
interface Schema {
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly type?: string;
  readonly pattern?: string;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly items?: Schema;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly patternProperties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly minProperties?: number;
}

const itemsMax = 3;

/** Values that fit a schema. */
export function fitting(given: object): Arbitrary<unknown> {
  const schema = given as Schema;
  if ("const" in schema) return fc.constant(schema.const);
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum);
  if (schema.anyOf !== undefined) return fc.oneof(...schema.anyOf.map(fitting));
  switch (schema.type) {
    case "string":
      return text(schema);
    case "integer":
      return fc.integer({
        min: schema.minimum ?? -(2 ** 31),
        max: Math.min(schema.maximum ?? 2 ** 31, 2 ** 31),
      });
    case "number":
      return fc.double({ noNaN: true, noDefaultInfinity: true });
    case "boolean":
      return fc.boolean();
    case "null":
      return fc.constant(null);
    case "array": {
      const minLength = schema.minItems ?? 0;
      const maxLength = Math.min(schema.maxItems ?? itemsMax, Math.max(itemsMax, minLength));
      return fc.array(fitting(schema.items ?? {}), { minLength, maxLength });
    }
    case "object":
      return object(schema);
    case undefined:
    default:
      return fc.jsonValue({ maxDepth: 2 });
  }
}

function object(schema: Schema): Arbitrary<unknown> {
  const { properties = {}, required = [], patternProperties = {} } = schema;
  const named = fc.record(
    Object.fromEntries(Object.entries(properties).map(([name, member]) => [name, fitting(member)])),
    { requiredKeys: [...required] },
  );
  const free = Object.entries(patternProperties).map(([pattern, member]) =>
    fc.dictionary(text({ pattern, maxLength: 63 }), fitting(member), { maxKeys: itemsMax }),
  );
  return fc
    .tuple(named, ...free)
    .map((parts) => Object.assign({}, ...parts) as object)
    .filter((value) => Object.keys(value).length >= (schema.minProperties ?? 0));
}

function text(schema: Schema): Arbitrary<string> {
  const { pattern, minLength = 0, maxLength = 200 } = schema;
  if (pattern === undefined) return fc.string({ minLength, maxLength: Math.min(maxLength, 200) });
  // What looks ahead is left to the filter: the library can't generate from it.
  const plain = pattern.replaceAll(/\(\?[=!][^)]*\)/g, "");
  const exact = new RegExp(pattern, "u");
  return fc
    .stringMatching(new RegExp(plain), { maxLength: Math.min(maxLength, 200) })
    .filter((value) => exact.test(value) && value.length >= minLength && value.length <= maxLength);
}

/** Something else somewhere inside: near enough to a value that fits to get past the first check now and then. */
export function nearly(value: Arbitrary<unknown>, odd: Arbitrary<unknown>): Arbitrary<unknown> {
  return fc
    .tuple(value, fc.infiniteStream(fc.nat(5)), odd, fc.string())
    .map(([sound, steps, other, name]) => {
      const turns = steps[Symbol.iterator]();
      return disturbed(sound, () => turns.next().value ?? 0, other, name);
    });
}

function disturbed(value: unknown, turn: () => number, other: unknown, name: string): unknown {
  if (typeof value !== "object" || value === null || turn() === 0) return other;
  if (Array.isArray(value)) {
    if (value.length === 0) return [other];
    const at = turn() % value.length;
    return value.map((item: unknown, index) => (index === at ? disturbed(item, turn, other, name) : item));
  }
  const entries = Object.entries(value);
  const choice = turn();
  if (choice === 0 || entries.length === 0) return Object.fromEntries([...entries, [name, other]]);
  const at = turn() % entries.length;
  if (choice === 1) return Object.fromEntries(entries.filter((_entry, index) => index !== at));
  return Object.fromEntries(
    entries.map(([key, member], index) => [
      key,
      index === at ? disturbed(member, turn, other, name) : member,
    ]),
  );
}
