import { readFileSync, statSync } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import type { SandboxSpec, SecretReference } from "../core/runtime.port.ts";
import { checkName } from "./object-name.ts";

const secretBytesMax = 64 * 1024;

/**
 * A secret is the exact content of `<directory>/<name>/<key>`. The supervisor reads all that the spec names,
 * or nothing starts. Errors name a secret and never show it.
 */
export function readSecrets(directory: string, secrets: SandboxSpec["secrets"]): Record<string, string> {
  return Object.fromEntries(
    Object.entries(secrets).map(([variable, reference]) => [variable, readSecret(directory, reference)]),
  );
}

function readSecret(directory: string, reference: SecretReference): string {
  const what = `secret ${reference.name}/${reference.key}`;
  const path = secretPath(directory, reference);
  let value: string;
  try {
    if (statSync(path).size > secretBytesMax) throw new Error(`it is longer than ${secretBytesMax} bytes`);
    value = readFileSync(path, "utf8");
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "too long";
    throw new Error(`${what} can't be read (${code})`, { cause: error });
  }
  if (value.includes("\0")) throw new Error(`${what} holds a zero byte`);
  return value;
}

/** Those that can be read here, for masking (E15). */
export async function readableSecretValues(
  directory: string,
  secrets: SandboxSpec["secrets"],
): Promise<readonly string[]> {
  const values: string[] = [];
  for (const reference of Object.values(secrets)) {
    const path = secretPath(directory, reference);
    try {
      if ((await stat(path)).size <= secretBytesMax) values.push(await readFile(path, "utf8"));
    } catch {
      // The command can't have been given what nobody can read.
    }
  }
  return values.filter((value) => value !== "");
}

function secretPath(directory: string, { name, key }: SecretReference): string {
  return join(directory, checkName(name, "the secret's name"), checkName(key, "the secret's key"));
}
