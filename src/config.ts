import { readFileSync, statSync } from "node:fs";
import { configKeys, type KeyReaders, type KeyTable } from "./config/keys.ts";
import type { ConnectionSettings } from "./core/postgres/pool.ts";
import { closeName } from "./wire/close-name.ts";
import { HoldfastError } from "./wire/holdfast-error.ts";

type Read<Reader> = Reader extends { readonly read: (text: string) => infer Value } ? Value : never;

/** What the environment says, parsed once. A key that has no default and is not set is `null`. */
export type Config = {
  readonly [Key in keyof KeyReaders]:
    | Read<KeyReaders[Key]>
    | (KeyReaders[Key] extends { readonly fallback: string } ? never : null);
} & {
  /** Keys that are set and mean nothing here, though they look like ones that would. For the log. */
  readonly warnings: readonly string[];
};

export type Environment = Readonly<Record<string, string | undefined>>;

const secretBytesMax = 65_536;

/**
 * Read the environment. Everything that is wrong is reported at once, each with its key and never with a
 * secret's value: `invalid_configuration`.
 */
export function parseConfig(environment: Environment, readFile = readSecret): Config {
  const problems: string[] = [];
  const values: Record<string, unknown> = {};
  for (const [member, key] of Object.entries<KeyTable[string]>(configKeys)) {
    try {
      const text = keyText(key, environment, readFile) ?? key.fallback;
      values[member] = text === undefined ? null : key.read(text);
    } catch (error) {
      problems.push(`${key.name} ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  if (problems.length > 0) throw new HoldfastError("invalid_configuration", problems.join("; "));
  return Object.freeze({ ...values, warnings: unknownKeys(environment) }) as unknown as Config; // One member a key, read by its own reader.
}

let parsed: Config | undefined;

/** This process's configuration: the only look at `process.env`. */
export function config(): Config {
  parsed ??= parseConfig(process.env);
  return parsed;
}

export type OptionalKey = { [Key in keyof Config]: null extends Config[Key] ? Key : never }[keyof Config];

/** Throws unless all of these are set: whoever has forgotten several is told of all at once. */
export function assertSet(from: Config, keys: readonly OptionalKey[]): void {
  const missing = [...new Set(keys)].filter((key) => from[key] === null);
  if (missing.length > 0) throw notSet(missing);
}

function notSet(keys: readonly OptionalKey[]): HoldfastError {
  const names = keys.map((key) => configKeys[key].name);
  const last = names.pop() ?? "";
  const all = names.length === 0 ? `${last} is` : `${names.join(", ")} and ${last} are`;
  return new HoldfastError("invalid_configuration", `${all} not set`);
}

/** A value that this process can't do without. */
export function required<Key extends OptionalKey>(from: Config, key: Key): NonNullable<Config[Key]> {
  const value = from[key];
  if (value === null) throw notSet([key]);
  return value;
}

/** The database, with the connection past its pooler where there is one. */
export function databaseOf(from: Config): ConnectionSettings {
  const database = required(from, "database");
  if (database.pooler === undefined) return database;
  return { ...database, direct: required(from, "databaseDirect") };
}

/** An empty variable counts as not set, because a shell can hardly tell the two apart. */
function keyText(
  key: KeyTable[string],
  environment: Environment,
  readFile: (path: string) => string,
): string | undefined {
  const text = environment[key.name];
  const path = key.secret ? environment[`${key.name}_FILE`] : undefined;
  if (path === undefined || path === "") return text === "" ? undefined : text;
  if (text !== undefined && text !== "")
    throw new Error(`and ${key.name}_FILE are both set; keep one of them`);
  try {
    return readFile(path);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new Error(`can't be read from its file: ${reason}`, { cause: error });
  }
}

function readSecret(path: string): string {
  if (statSync(path).size > secretBytesMax) throw new Error(`${path} is larger than ${secretBytesMax} bytes`);
  return readFileSync(path, "utf8").trimEnd();
}

function unknownKeys(environment: Environment): string[] {
  const known = Object.values<KeyTable[string]>(configKeys).flatMap(({ name, secret }) =>
    secret ? [name, `${name}_FILE`] : [name],
  );
  const bare = known.map((name) => name.replace(/^HOLDFAST_/, ""));
  return Object.keys(environment)
    .filter((name) => name.startsWith("HOLDFAST_") && !known.includes(name))
    .flatMap((name) => {
      const close = closeName(name.slice("HOLDFAST_".length), bare);
      return close === undefined ? [] : [`${name} means nothing; did you mean HOLDFAST_${close}?`];
    });
}
