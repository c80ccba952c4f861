import { HoldfastError } from "../errors.ts";
import { sqlstateOf } from "../postgres/sqlstate.ts";
import { type Microseconds, seconds, toMilliseconds } from "../time.ts";
import type { MigrationEffect } from "./catalogue.ts";
import { expectedStore } from "./expected.ts";
import {
  type AppliedMigration,
  historyRow,
  historyTable,
  pendingMigrations,
  readHistory,
} from "./history.ts";
import { type Migration, migrationLabel } from "./migrations.ts";
import { type OnlineState, type OnlineStep, onlineStates } from "./online.ts";
import { inTransaction, type SchemaSession } from "./session.ts";
import { assertMayChange, inTurn } from "./turn.ts";
import { assertCatalogue } from "./verify.ts";

export interface ApplyOptions {
  /** All migrations of this release, or for an upgrade test the first of them. */
  readonly migrations: readonly Migration[];
  /** The id that a new store gets. A store keeps the one that it has. */
  readonly installation?: string;
  /** How long a migration waits for a lock on a table, so that it never queues the application behind itself. */
  readonly lockTimeout?: Microseconds;
  /** How long to wait for another apply to finish. */
  readonly turnTimeout?: Microseconds;
  /**
   * What the migrations make (`catalogue.json`). With it each is checked before and after, inside its transaction,
   * and all of them at the end; without it nothing is compared.
   */
  readonly effects?: readonly MigrationEffect[];
  /** The release's online steps: what those that have been run made is told from drift. */
  readonly steps?: readonly OnlineStep[];
  /** Called inside a migration's transaction, at its end. */
  readonly beforeCommit?: (migration: Migration) => Promise<void>;
  /** Called after each commit. */
  readonly onApplied?: (migration: Migration) => void;
}

export interface ApplyResult {
  readonly applied: readonly Migration[];
  readonly version: number;
}

/**
 * Bring the store to this release's schema (M1): in order, each migration in one transaction with its row of
 * history. Applying again changes nothing. Runs as `holdfast_owner`, which the session must be or be allowed
 * to become (M3); no process that serves does this at its start.
 *
 * Throws `owner_required`, `schema_busy`, `schema_drift`, `schema_incompatible` or `migration_failed`.
 */
export async function applySchema(session: SchemaSession, options: ApplyOptions): Promise<ApplyResult> {
  await assertMayChange(session);
  return inTurn(session, options.turnTimeout ?? seconds(300), async () => {
    const history = await makeHistory(session, options);
    const pending = pendingMigrations(options.migrations, history);
    // No step can run meanwhile: it is our turn.
    const states = await asOwner(session, options, () => onlineStates(session, options.steps ?? []));
    for (const migration of pending) {
      await applyMigration(session, migration, { ...options, states });
      options.onApplied?.(migration);
    }
    const version = history.length + pending.length;
    await asOwner(session, options, () =>
      assertMade(session, version, { ...options, states }, "what was applied"),
    );
    return { applied: pending, version };
  });
}

/** With how far the online steps were when this apply began. */
type Applying = ApplyOptions & { readonly states: readonly OnlineState[] };

/** Nothing when the caller has no catalogue. */
async function assertMade(
  session: SchemaSession,
  version: number,
  { effects, migrations, steps = [], states }: Applying,
  when: string,
): Promise<void> {
  if (effects === undefined) return;
  const applied = migrations.slice(0, version);
  const complete = version === migrations.length;
  await assertCatalogue(session, expectedStore(effects, applied, { steps, states, complete }), when);
}

const lockNotAvailable = "55P03";

async function makeHistory(session: SchemaSession, options: ApplyOptions): Promise<AppliedMigration[]> {
  const history = await asOwner(session, options, () => readHistory(session));
  if (history !== undefined) return history;
  await asOwner(session, options, () => session.query(historyTable));
  return [];
}

/** A login that may become the owner inherits nothing of it, not even the right to look. */
function asOwner<T>(session: SchemaSession, options: ApplyOptions, body: () => Promise<T>): Promise<T> {
  return inTransaction(session, async () => {
    await session.query(ownerSettings(options));
    return body();
  });
}

async function applyMigration(
  session: SchemaSession,
  migration: Migration,
  options: Applying,
): Promise<void> {
  try {
    await asOwner(session, options, async () => {
      const label = migrationLabel(migration);
      await assertMade(session, migration.version - 1, options, `before ${label}`);
      await session.query("select set_config('holdfast.installation', $1, true)", [
        options.installation ?? "",
      ]);
      await session.query(migration.sql);
      await session.query(historyRow(migration));
      await assertMade(session, migration.version, options, `after ${label}, which was rolled back`);
      await options.beforeCommit?.(migration);
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
function settings({ lockTimeout }: Pick<ApplyOptions, "lockTimeout">): string {
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
