import { createHash } from "node:crypto";
import { HoldfastError } from "../errors.ts";
import {
  type CatalogueDifference,
  catalogueLines,
  compareCatalogue,
  expectedObjects,
  type MigrationEffect,
} from "./catalogue.ts";
import { pendingMigrations, readHistory } from "./history.ts";
import { type Migration, migrationLabel } from "./migrations.ts";
import { inTransaction, type SchemaSession } from "./session.ts";

export interface Verification extends CatalogueDifference {
  readonly version: number;
  /** Over history and catalogue: two stores of one version that are as they should be have the same. */
  readonly digest: string;
  readonly objects: number;
}

const namedMax = 5;

/**
 * Whether the store's history and catalogue are what a fresh install has. Reads the system's catalogue, so any role
 * that may see the history will do.
 *
 * Throws `schema_missing`, `schema_drift` or `schema_incompatible` for what the history says.
 */
export async function verifySchema(
  session: SchemaSession,
  migrations: readonly Migration[],
  effects: readonly MigrationEffect[],
): Promise<Verification> {
  const history = await readHistory(session);
  if (history === undefined || history.length === 0) {
    throw new HoldfastError("schema_missing", "the database has no Holdfast schema");
  }
  pendingMigrations(migrations, history);
  const applied = migrations.slice(0, history.length);
  const expected = expectedObjects(effects, applied);
  if (expected === null) {
    throw new HoldfastError("schema_drift", "catalogue.json is not of these migrations: `npm run generate`");
  }
  const found = await inTransaction(session, async () => {
    await session.query("set local search_path = ''");
    return catalogueLines(session);
  });
  const digest = createHash("sha256");
  for (const migration of applied) digest.update(`${migrationLabel(migration)} ${migration.checksum}\n`);
  for (const [object, line] of found) digest.update(`${object} ${line}\n`);
  return {
    version: history.length,
    digest: digest.digest("hex"),
    objects: found.size,
    ...compareCatalogue(expected, found),
  };
}

/**
 * Inside a transaction as the owner: throws `schema_drift` unless all that these migrations make is there as they
 * make it. What was added beside it is not asked for. A catalogue of other bytes says nothing.
 */
export async function assertCatalogue(
  session: SchemaSession,
  migrations: readonly Migration[],
  effects: readonly MigrationEffect[],
  when: string,
): Promise<void> {
  const expected = expectedObjects(effects, migrations);
  if (expected === null) return;
  const { missing, changed } = compareCatalogue(expected, await catalogueLines(session));
  const wrong = [
    ...missing.map((object) => `${object} is missing`),
    ...changed.map((object) => `${object} is another`),
  ];
  if (wrong.length === 0) return;
  const more = wrong.length > namedMax ? `, and ${String(wrong.length - namedMax)} more` : "";
  throw new HoldfastError("schema_drift", `${when}: ${wrong.slice(0, namedMax).join(", ")}${more}`);
}
