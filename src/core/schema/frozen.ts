import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { type Migration, migrationLabel } from "./migrations.ts";

export const frozenFile = "checksums.json";

/** The checksums that a release has promised, by `NNNN_name`; null before the first one. */
export async function readFrozen(directory: string): Promise<Readonly<Record<string, string>> | null> {
  try {
    return JSON.parse(await readFile(join(directory, frozenFile), "utf8")) as Record<string, string>;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return null;
    throw error;
  }
}

/** Which of them are gone or have other bytes. */
export function thawed(
  frozen: Readonly<Record<string, string>>,
  migrations: readonly Pick<Migration, "version" | "name" | "checksum">[],
): string[] {
  const now = new Map(migrations.map((migration) => [migrationLabel(migration), migration.checksum]));
  return Object.entries(frozen)
    .filter(([label, checksum]) => now.get(label) !== checksum)
    .map(([label]) => label);
}
