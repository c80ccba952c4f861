import { createHash } from "node:crypto";
import { HoldfastError } from "../errors.ts";
import {
  type CatalogueDifference,
  catalogueLines,
  compareCatalogue,
  type ExpectedStore,
  type MigrationEffect,
} from "./catalogue.ts";
import { expectedStore } from "./expected.ts";
import { pendingMigrations, readHistory } from "./history.ts";
import { type Migration, migrationLabel } from "./migrations.ts";
import { type OnlineState, type OnlineStep, onlineStates } from "./online.ts";
import { inTransaction, type SchemaSession } from "./session.ts";

export interface Verification extends CatalogueDifference {
  readonly version: number;
  /**
   * Over history, online steps that are done, and catalogue: two stores of one version that are as they should be and
   * have the same steps done have the same.
   */
  readonly digest: string;
  readonly objects: number;
  readonly online: readonly OnlineState[];
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
  steps: readonly OnlineStep[] = [],
): Promise<Verification> {
  const history = await readHistory(session);
  if (history === undefined || history.length === 0) {
    throw new HoldfastError("schema_missing", "the database has no Holdfast schema");
  }
  pendingMigrations(migrations, history);
  const applied = migrations.slice(0, history.length);
  const online = await onlineStates(session, steps);
  const complete = applied.length === migrations.length;
  const expected = expectedStore(effects, applied, { steps, states: online, complete });
  if (expected === null) {
    throw new HoldfastError(
      "schema_drift",
      "catalogue.json is not of these migrations and online steps: `npm run generate`",
    );
  }
  const found = await inTransaction(session, async () => {
    await session.query("set local search_path = ''");
    return catalogueLines(session);
  });
  const digest = createHash("sha256");
  for (const migration of applied) digest.update(`${migrationLabel(migration)} ${migration.checksum}\n`);
  for (const [place, { name, checksum }] of steps.entries()) {
    if (online[place]?.state === "done") digest.update(`online ${name} ${checksum}\n`);
  }
  for (const [object, line] of found) digest.update(`${object} ${line}\n`);
  return {
    version: history.length,
    digest: digest.digest("hex"),
    objects: found.size,
    online,
    ...compareCatalogue(expected, found),
  };
}

/**
 * Inside a transaction as the owner: throws `schema_drift` unless all that is expected is there as it should be. What
 * was added beside it is not asked for, and of a catalogue of other bytes nothing is expected.
 */
export async function assertCatalogue(
  session: SchemaSession,
  expected: ExpectedStore | null,
  when: string,
): Promise<void> {
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
