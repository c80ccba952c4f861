/**
 * `node scripts/freeze-migrations.ts`, once a release: the bytes of every migration are written down in
 * `migrations/checksums.json`, and a test holds them to it from the commit of that file on. What is frozen already and
 * has other bytes now is refused.
 */
import { readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { frozenFile } from "../src/core/schema/frozen.ts";
import { migrationLabel, readMigrations } from "../src/core/schema/migrations.ts";

const directory = join(resolve(import.meta.dirname, ".."), "migrations");
const path = join(directory, frozenFile);
const text = await readFile(path, "utf8").catch(() => "{}");
const frozen = JSON.parse(text) as Record<string, string>;
const now = (await readMigrations(directory)).map(
  (migration) => [migrationLabel(migration), migration.checksum] as const,
);
const changed = now.filter(([label, checksum]) => (frozen[label] ?? checksum) !== checksum);
if (changed.length > 0) {
  console.error(`frozen already: ${changed.map(([label]) => label).join(", ")}`);
  process.exitCode = 1;
} else {
  await writeFile(path, `${JSON.stringify(Object.fromEntries(now), null, 2)}\n`);
  console.log(`froze ${now.length} migrations`);
}
