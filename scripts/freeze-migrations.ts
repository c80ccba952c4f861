/**
 * `node scripts/freeze-migrations.ts`, once a release: the bytes of every migration and online step are written
 * down in `migrations/checksums.json`, and a test holds them to it from the commit of that file on. What is frozen already and
 * has other bytes now is refused.
 */
import { readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { checksumsOf, frozenFile, thawed } from "../src/core/schema/frozen.ts";
import { readMigrations } from "../src/core/schema/migrations.ts";
import { readOnlineSteps } from "../src/core/schema/online.ts";

const directory = join(resolve(import.meta.dirname, ".."), "migrations");
const path = join(directory, frozenFile);
const text = await readFile(path, "utf8").catch(() => "{}");
const frozen = JSON.parse(text) as Record<string, string>;
const now = checksumsOf(await readMigrations(directory), await readOnlineSteps(directory));
const changed = thawed(frozen, now);
if (changed.length > 0) {
  console.error(`frozen already: ${changed.join(", ")}`);
  process.exitCode = 1;
} else {
  await writeFile(path, `${JSON.stringify(now, null, 2)}\n`);
  console.log(`froze ${Object.keys(now).length} files`);
}
