import { HoldfastError } from "../errors.ts";
import { sqlstateOf } from "../postgres/sqlstate.ts";
import { type Instant, instant } from "../time.ts";
import { type Migration, migrationLabel } from "./migrations.ts";
import { rowsOf, type SchemaSession } from "./session.ts";

/** A row of holdfast.schema_migrations: rows are added, never changed. */
export interface AppliedMigration {
  readonly version: number;
  readonly name: string;
  readonly checksum: string;
  readonly appliedAt: Instant;
  readonly appliedBy: string;
}

/** The engine's own tables, made before the first migration. */
export const historyTable = `create schema if not exists holdfast;
create table if not exists holdfast.schema_migrations (
  version integer primary key,
  name text not null,
  checksum text not null constraint schema_migrations_checksum check (checksum ~ '^[0-9a-f]{64}$'),
  applied_at timestamptz not null default pg_catalog.clock_timestamp(),
  applied_by text not null default session_user,
  duration_us bigint not null
    default extract(epoch from pg_catalog.clock_timestamp() - pg_catalog.transaction_timestamp()) * 1000000
);
create table if not exists holdfast.schema_online_steps (
  name text primary key,
  checksum text not null constraint schema_online_steps_checksum check (checksum ~ '^[0-9a-f]{64}$'),
  tries integer not null default 1,
  started_at timestamptz not null default pg_catalog.clock_timestamp(),
  finished_at timestamptz,
  applied_by text not null default session_user
);`;

/** The statement that records a migration, in the migration's own transaction. */
export function historyRow({ version, name, checksum }: Migration): string {
  return `insert into holdfast.schema_migrations (version, name, checksum) values (${String(version)}, '${name}', '${checksum}');`;
}

/** What has been applied, oldest first; undefined when there is no history table. */
export async function readHistory(session: SchemaSession): Promise<AppliedMigration[] | undefined> {
  try {
    const rows = await rowsOf<{
      version: number;
      name: string;
      checksum: string;
      applied_at: string;
      applied_by: string;
    }>(
      session,
      `select version, name, checksum, applied_by,
         (extract(epoch from applied_at) * 1000000)::bigint::text as applied_at
       from holdfast.schema_migrations order by version`,
    );
    return rows.map((row) => ({
      version: row.version,
      name: row.name,
      checksum: row.checksum,
      appliedAt: instant(BigInt(row.applied_at)),
      appliedBy: row.applied_by,
    }));
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/** invalid_schema_name or undefined_table. */
export function isMissing(error: unknown): boolean {
  return ["3F000", "42P01"].includes(sqlstateOf(error) ?? "");
}

/**
 * What is left to apply. Throws `schema_drift` when a migration was applied with other bytes or under another
 * name, `schema_incompatible` when the store is ahead of these files.
 */
export function pendingMigrations(
  migrations: readonly Migration[],
  history: readonly AppliedMigration[],
): readonly Migration[] {
  for (const [index, applied] of history.entries()) {
    const label = migrationLabel(applied);
    const migration = migrations[index];
    if (migration === undefined) {
      throw new HoldfastError(
        "schema_incompatible",
        `the store has ${label}, and this release ends at ${String(migrations.length)}: deploy the release that brought it`,
      );
    }
    if (applied.version !== migration.version || applied.name !== migration.name) {
      throw new HoldfastError(
        "schema_drift",
        `the store has ${label} where this release has ${migrationLabel(migration)}`,
      );
    }
    if (applied.checksum !== migration.checksum) {
      throw new HoldfastError("schema_drift", `${label} was applied with other bytes`);
    }
  }
  return migrations.slice(history.length);
}
