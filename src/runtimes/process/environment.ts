import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { checkName, files, sandboxMarker } from "./layout.ts";
import type { RequestRecord } from "./records.ts";

const secretBytesMax = 64 * 1024;

/**
 * The command's whole environment: a minimal base, then the spec, the private part, the secrets, and last
 * the marker, which nothing can replace. Nothing of the controller's environment is in it, so a database
 * password that the controller was given can't be read from here.
 */
export function commandEnvironment(
  folderPath: string,
  request: RequestRecord,
  privateEnv: Readonly<Record<string, string>>,
): Record<string, string> {
  const { spec, settings, uid } = request;
  const [markerName, markerValue] = sandboxMarker(uid).split("=", 2);
  return {
    PATH: settings.searchPath,
    HOME: join(folderPath, files.work),
    LANG: "C.UTF-8",
    ...spec.env,
    ...privateEnv,
    ...readSecrets(settings.secretsDirectory, spec.secrets),
    [String(markerName)]: String(markerValue),
  };
}

/** A secret is the exact content of `<secretsDirectory>/<name>/<key>`. Errors name it and never show it. */
function readSecrets(directory: string, secrets: RequestRecord["spec"]["secrets"]): Record<string, string> {
  const values: Record<string, string> = {};
  for (const [variable, reference] of Object.entries(secrets)) {
    const name = checkName(reference.name, "the secret's name");
    const key = checkName(reference.key, "the secret's key");
    values[variable] = readSecret(join(directory, name, key), `secret ${name}/${key}`);
  }
  return values;
}

function readSecret(path: string, what: string): string {
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
