import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { type Migration, migrationLabel } from "./migrations.ts";
import type { OnlineStep } from "./online.ts";

export const frozenFile = "checksums.json";

/** The checksums that a release has promised, by `NNNN_name` and `online/NNNN_name`; null before the first one. */
export async function readFrozen(directory: string): Promise<Readonly<Record<string, string>> | null> {
  try {
    return JSON.parse(await readFile(join(directory, frozenFile), "utf8")) as Record<string, string>;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return null;
    throw error;
  }
}

/** What a release would promise now. */
export function checksumsOf(
  migrations: readonly Pick<Migration, "version" | "name" | "checksum">[],
  steps: readonly Pick<OnlineStep, "name" | "checksum">[],
): Record<string, string> {
  return Object.fromEntries([
    ...migrations.map((migration) => [migrationLabel(migration), migration.checksum]),
    ...steps.map(({ name, checksum }) => [`online/${name}`, checksum]),
  ]);
}

/** Which of them are gone or have other bytes. */
export function thawed(
  frozen: Readonly<Record<string, string>>,
  now: Readonly<Record<string, string>>,
): string[] {
  return Object.entries(frozen)
    .filter(([label, checksum]) => now[label] !== checksum)
    .map(([label]) => label);
}
