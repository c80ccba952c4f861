/**
 * Reading our own JSON files and messages back. They may be torn, edited or of another version, so every
 * member is checked; there is no library here, because the supervisor must start quickly.
 */
export type Fields = Readonly<Record<string, unknown>>;

export function parseFields(text: string): Fields {
  return asFields(JSON.parse(text), "the document");
}

export function asFields(value: unknown, what: string): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new TypeError(`${what} is not an object`);
  }
  return value as Fields; // a plain object, whose members are read as unknown
}

export function text(fields: Fields, key: string): string {
  const value = fields[key];
  if (typeof value !== "string") throw new TypeError(`${key} is not a string`);
  return value;
}

export function textOrNull(fields: Fields, key: string): string | null {
  return fields[key] === null ? null : text(fields, key);
}

export function whole(fields: Fields, key: string): number {
  const value = fields[key];
  if (typeof value !== "number" || !Number.isSafeInteger(value)) throw new TypeError(`${key} is no integer`);
  return value;
}

export function wholeOrNull(fields: Fields, key: string): number | null {
  return fields[key] === null ? null : whole(fields, key);
}

/** Integers beyond 2^53 travel as decimal strings. */
export function big(fields: Fields, key: string): bigint {
  const value = text(fields, key);
  if (!/^-?\d{1,19}$/.test(value)) throw new TypeError(`${key} is no integer`);
  return BigInt(value);
}

export function bigOrNull(fields: Fields, key: string): bigint | null {
  return fields[key] === null ? null : big(fields, key);
}

export function texts(fields: Fields, key: string): readonly string[] {
  const value = fields[key];
  if (!Array.isArray(value)) throw new TypeError(`${key} is not a list`);
  return value.map((item: unknown) => {
    if (typeof item !== "string") throw new TypeError(`${key} holds something that is not a string`);
    return item;
  });
}

export function textMap(fields: Fields, key: string): Readonly<Record<string, string>> {
  const map = asFields(fields[key], key);
  return Object.fromEntries(Object.keys(map).map((name) => [name, text(map, name)]));
}

export function oneOf<const T extends string>(fields: Fields, key: string, allowed: readonly T[]): T {
  const value = text(fields, key);
  const found = allowed.find((item) => item === value);
  if (found === undefined) throw new TypeError(`${key} is none of ${allowed.join(", ")}`);
  return found;
}

/** JSON with integers as decimal strings, which `big` reads back. */
export function toJson(value: object): string {
  return JSON.stringify(value, (_key, item: unknown) => (typeof item === "bigint" ? String(item) : item));
}
