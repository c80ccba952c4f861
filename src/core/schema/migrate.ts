import { HoldfastError } from "../errors.ts";
import { sqlstateOf } from "../postgres/sqlstate.ts";
import { type Microseconds, seconds, toMilliseconds } from "../time.ts";
import {
  type AppliedMigration,
  historyRow,
  historyTable,
  pendingMigrations,
  readHistory,
} from "./history.ts";
import { type Migration, migrationLabel } from "./migrations.ts";
import { inTransaction, rowsOf, type SchemaSession } from "./session.ts";

export interface ApplyOptions {
  /** All migrations of this release, or for an upgrade test the first of them. */
  readonly migrations: readonly Migration[];
  /** The id that a new store gets. A store keeps the one that it has. */
  readonly installation?: string;
  /** How long a migration waits for a lock on a table, so that it never queues the application behind itself. */
  readonly lockTimeout?: Microseconds;
  /** How long to wait for another apply to finish. */
  readonly turnTimeout?: Microseconds;
  /** Called after each commit. */
  readonly onApplied?: (migration: Migration) => void;
}

export interface ApplyResult {
  readonly applied: readonly Migration[];
  readonly version: number;
}

/** Everybody who applies takes this session lock first. */
const migrationLock = 7146290580n;
const serverVersionMinimum = 170_000;

/**
 * Bring the store to this release's schema (M1): in order, each migration in one transaction with its row of
 * history. Applying again changes nothing. Runs as `holdfast_owner`, which the session must be or be allowed
 * to become (M3); no process that serves does this at its start.
 *
 * Throws `owner_required`, `schema_busy`, `schema_drift`, `schema_incompatible` or `migration_failed`.
 */
export async function applySchema(session: SchemaSession, options: ApplyOptions): Promise<ApplyResult> {
  await assertServer(session);
  await assertOwner(session);
  await takeTurn(session, options.turnTimeout ?? seconds(300));
  try {
    const history = await makeHistory(session, options);
    const pending = pendingMigrations(options.migrations, history);
    for (const migration of pending) {
      await applyMigration(session, migration, options);
      options.onApplied?.(migration);
    }
    return { applied: pending, version: history.length + pending.length };
  } finally {
    // A dead connection has let go of it already.
    await session.query(`select pg_advisory_unlock(${String(migrationLock)})`).catch(() => undefined);
  }
}

async function assertServer(session: SchemaSession): Promise<void> {
  const [server] = await rowsOf<{ version: number }>(
    session,
    "select current_setting('server_version_num')::int4 as version",
  );
  if (server === undefined || server.version < serverVersionMinimum) {
    throw new HoldfastError("schema_incompatible", "the server is older than PostgreSQL 17");
  }
}

async function assertOwner(session: SchemaSession): Promise<void> {
  const [role] = await rowsOf<{ user: string; may: boolean | null }>(
    session,
    `select session_user::text as user,
       (select pg_has_role(session_user, oid, 'SET') from pg_roles where rolname = 'holdfast_owner') as may`,
  );
  if (role?.may === true) return;
  const reason =
    role?.may === false ? `${role.user} may not become holdfast_owner` : "the role holdfast_owner is missing";
  throw new HoldfastError("owner_required", reason);
}

async function takeTurn(session: SchemaSession, turnTimeout: Microseconds): Promise<void> {
  try {
    await inTransaction(session, async () => {
      await session.query(settings({ lockTimeout: turnTimeout }));
      await session.query(`select pg_advisory_lock(${String(migrationLock)})`);
    });
  } catch (error) {
    if (sqlstateOf(error) !== lockNotAvailable) throw error;
    throw new HoldfastError("schema_busy", "another apply is still running", { cause: error });
  }
}

const lockNotAvailable = "55P03";

async function makeHistory(session: SchemaSession, options: ApplyOptions): Promise<AppliedMigration[]> {
  const history = await readHistory(session);
  if (history !== undefined) return history;
  await inTransaction(session, async () => {
    await session.query(ownerSettings(options));
    await session.query(historyTable);
  });
  return [];
}

async function applyMigration(
  session: SchemaSession,
  migration: Migration,
  options: ApplyOptions,
): Promise<void> {
  try {
    await inTransaction(session, async () => {
      await session.query(ownerSettings(options));
      await session.query("select set_config('holdfast.installation', $1, true)", [
        options.installation ?? "",
      ]);
      await session.query(migration.sql);
      await session.query(historyRow(migration));
    });
  } catch (error) {
    const state = sqlstateOf(error);
    // Without a state of the server's the connection broke: the server has rolled back, the caller may retry.
    if (state === undefined || !(error instanceof Error)) throw error;
    const code = state === lockNotAvailable ? "schema_busy" : "migration_failed";
    const detail = `${migrationLabel(migration)}${lineOf(migration, error)}: ${error.message} (${state})`;
    throw new HoldfastError(code, detail, { cause: error });
  }
}

/** The server counts characters from 1, from the start of the text that it was sent. */
function lineOf({ sql }: Migration, error: Error): string {
  const position = "position" in error ? Number(error.position) : Number.NaN;
  if (Number.isNaN(position)) return "";
  const before = Array.from(sql)
    .slice(0, position - 1)
    .join("");
  return ` line ${String(before.split("\n").length)}`;
}

/** Nothing of these outlives its transaction, so the session is given back as it came. */
function settings({ lockTimeout }: { readonly lockTimeout?: Microseconds }): string {
  return [
    "set local statement_timeout = 0",
    "set local transaction_timeout = 0",
    "set local idle_in_transaction_session_timeout = 0",
    `set local lock_timeout = ${String(toMilliseconds(lockTimeout ?? seconds(10)))}`,
  ].join(";");
}

/** The role and the empty search path under which every migration runs, here and in the script (M3). */
export const ownerPrelude = "set local role holdfast_owner;\nset local search_path = '';";

function ownerSettings(options: ApplyOptions): string {
  return `${settings(options)};${ownerPrelude}`;
}
