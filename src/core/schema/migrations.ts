import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";

/** One forward-only step of the schema, exactly as its file stands. */
export interface Migration {
  readonly version: number;
  /** The file's name without number and extension. */
  readonly name: string;
  readonly sql: string;
  /** SHA-256 of the file's bytes, in lower-case hex. */
  readonly checksum: string;
}

export function migrationLabel(migration: { readonly version: number; readonly name: string }): string {
  return `${String(migration.version).padStart(4, "0")}_${migration.name}`;
}

export const migrationFile = /^(\d{4})_([a-z0-9_]{1,60})\.sql$/;

/** The migrations of a folder in order. Their numbers start at 1 and have no gap; nothing else but generated JSON may lie there. */
export async function readMigrations(directory: string): Promise<Migration[]> {
  const files = (await readdir(directory, { withFileTypes: true }))
    .filter((entry) => entry.isFile() && entry.name !== rolesFile && !entry.name.endsWith(".json"))
    .map((entry) => entry.name)
    .sort();
  const migrations: Migration[] = [];
  for (const file of files) {
    const found = migrationFile.exec(file);
    const version = Number(found?.[1]);
    if (found?.[2] === undefined) throw new Error(`${file} is not named NNNN_name.sql`);
    if (version !== migrations.length + 1) {
      throw new Error(`${file} should have the number ${String(migrations.length + 1)}: no gap, none twice`);
    }
    const bytes = await readFile(join(directory, file));
    const checksum = createHash("sha256").update(bytes).digest("hex");
    migrations.push({ version, name: found[2], sql: bytes.toString("utf8"), checksum });
  }
  return migrations;
}

const rolesFile = "roles.sql";

/** The role recipe that ships beside the migrations (M3). */
export function readRoles(directory: string): Promise<string> {
  return readFile(join(directory, rolesFile), "utf8");
}

/** This release's own `migrations` folder, which lies beside `src` in a clone and beside `dist` in the package. */
export async function releaseMigrations(): Promise<string> {
  for (let at = import.meta.dirname; at !== dirname(at); at = dirname(at)) {
    const directory = join(at, "migrations");
    const names: string[] = await readdir(directory).catch(() => []);
    if (names.includes(rolesFile)) return directory;
  }
  throw new Error("this installation has no migrations folder");
}
