import { setTimeout as delay } from "node:timers/promises";
import { HoldfastError } from "../errors.ts";
import { readOnlyServer } from "../postgres/sqlstate.ts";
import { type Microseconds, toMilliseconds } from "../time.ts";
import { rowsOf, type SchemaSession } from "./session.ts";

/** Everybody who changes the schema holds this lock of the session, from reading the history to the last check. */
export const migrationLock = 7146290580n;
const pauseMs = 100;

const serverVersionMinimum = 170_000;

/** Throws `schema_incompatible`, `unavailable` or `owner_required`. */
export async function assertMayChange(session: SchemaSession): Promise<void> {
  const [server] = await rowsOf<{ version: number; standby: boolean }>(
    session,
    `select current_setting('server_version_num')::int4 as version,
       current_setting('transaction_read_only')::bool as standby`,
  );
  if (server === undefined || server.version < serverVersionMinimum) {
    throw new HoldfastError("schema_incompatible", "the server is older than PostgreSQL 17");
  }
  if (server.standby) throw readOnlyServer();
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

/**
 * Run the body while nobody else changes the schema. The lock is tried again and again instead of waited for: one
 * that waits in a statement holds a snapshot, and whoever has the lock may be building an index that waits for it.
 *
 * Throws `schema_busy` when the turn does not come in time.
 */
export async function inTurn<T>(
  session: SchemaSession,
  turnTimeout: Microseconds,
  body: () => Promise<T>,
): Promise<T> {
  const key = String(migrationLock);
  const deadline = performance.now() + toMilliseconds(turnTimeout);
  for (;;) {
    const [turn] = await rowsOf<{ taken: boolean }>(session, `select pg_try_advisory_lock(${key}) as taken`);
    if (turn?.taken === true) break;
    if (performance.now() >= deadline) {
      throw new HoldfastError("schema_busy", "another apply is still running");
    }
    await delay(pauseMs);
  }
  try {
    return await body();
  } finally {
    // A dead connection has let go of it already.
    await session.query(`select pg_advisory_unlock(${key})`).catch(() => undefined);
  }
}
