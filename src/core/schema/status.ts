import { HoldfastError, isHoldfastError } from "../errors.ts";
import { sqlstateOf } from "../postgres/sqlstate.ts";
import { type Instant, instant } from "../time.ts";
import { judgeCompatibility, readStore, type StoreFacts } from "./compatibility.ts";
import { type AppliedMigration, isMissing, pendingMigrations, readHistory } from "./history.ts";
import type { Migration } from "./migrations.ts";
import { type OnlineState, type OnlineStep, onlineStates } from "./online.ts";
import { rowsOf, type SchemaSession } from "./session.ts";
import { type SchemaRange, supportedSchema } from "./version.ts";

/** Live processes that are the same in all that decides whether they and the store fit each other. */
export interface LiveProcesses {
  readonly process: string;
  readonly release: string;
  readonly schema: SchemaRange;
  readonly deploymentEpoch: bigint;
  readonly count: number;
  readonly seenAt: Instant;
}

export interface SchemaStatus {
  readonly applied: readonly AppliedMigration[];
  readonly pending: readonly Migration[];
  /** Why nothing can be applied (drift, or a store ahead of this release); null when it can. */
  readonly problem: HoldfastError | null;
  readonly store: StoreFacts | null;
  readonly supported: SchemaRange;
  /** Why this release may not read or write the store; null when it may. */
  readonly read: HoldfastError | null;
  readonly write: HoldfastError | null;
  /** Null when there is no store, or this login may not see them. */
  readonly processes: readonly LiveProcesses[] | null;
  readonly online: readonly OnlineState[] | null;
}

/**
 * The roles under which the store can be looked at. A login inherits nothing, so one that looks takes the first of
 * these that it may; whoever may none looks as himself.
 */
const lookingRoles = [
  "operator",
  "dispatcher",
  "gateway",
  "controller",
  "worker",
  "producer",
  "retention",
  "owner",
].map((role) => `holdfast_${role}`);

/** Give the session a role of its login's that may look; gives its name, or null when there is none. */
export async function takeLookingRole(session: SchemaSession): Promise<string | null> {
  const [found] = await rowsOf<{ role: string }>(
    session,
    `select rolname::text as role from pg_catalog.pg_roles
     where rolname = any($1) and pg_catalog.pg_has_role(session_user, oid, 'SET')
     order by pg_catalog.array_position($1::text[], rolname::text) limit 1`,
    [lookingRoles],
  );
  if (found === undefined) return null;
  await session.query(`set role ${found.role}`);
  return found.role;
}

/** Look at the store without changing it, under whatever role the session has (M5). */
export async function schemaStatus(
  session: SchemaSession,
  migrations: readonly Migration[],
  options: { readonly supported?: SchemaRange; readonly steps?: readonly OnlineStep[] } = {},
): Promise<SchemaStatus> {
  const supported = options.supported ?? supportedSchema;
  const applied = (await readHistory(session)) ?? [];
  const { pending, problem } = pendingOr(migrations, applied);
  const store = await storeOrNull(session);
  const verdict = (purpose: "read" | "write") =>
    store === null
      ? new HoldfastError("schema_missing", "the database has no Holdfast schema")
      : (judgeCompatibility(store, { purpose, supported }) ?? null);
  return {
    applied,
    pending,
    problem,
    store,
    supported,
    read: verdict("read"),
    write: verdict("write"),
    processes: store === null ? null : await visible(() => liveProcesses(session)),
    online: store === null ? null : await visible(() => onlineStates(session, options.steps ?? [])),
  };
}

async function liveProcesses(session: SchemaSession): Promise<LiveProcesses[]> {
  const rows = await rowsOf<{
    process: string;
    release: string;
    schema_minimum: number;
    schema_maximum: number;
    deployment_epoch: string;
    count: number;
    seen_at: string;
  }>(
    session,
    `select process, release, schema_minimum, schema_maximum, deployment_epoch::text, count(*)::int4 as count,
       (extract(epoch from max(seen_at)) * 1000000)::int8::text as seen_at
     from holdfast.incarnations
     where ended_at is null and seen_at > pg_catalog.clock_timestamp() - interval '2 minutes'
     group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5 limit 1000`,
  );
  return rows.map((row) => ({
    process: row.process,
    release: row.release,
    schema: { minimum: row.schema_minimum, maximum: row.schema_maximum },
    deploymentEpoch: BigInt(row.deployment_epoch),
    count: row.count,
    seenAt: instant(BigInt(row.seen_at)),
  }));
}

/** Null where the store is older than what is asked, or the role may not see it. */
async function visible<T>(look: () => Promise<T>): Promise<T | null> {
  try {
    return await look();
  } catch (error) {
    if (isMissing(error) || sqlstateOf(error) === "42501") return null;
    throw error;
  }
}

function pendingOr(
  migrations: readonly Migration[],
  applied: readonly AppliedMigration[],
): Pick<SchemaStatus, "pending" | "problem"> {
  try {
    return { pending: pendingMigrations(migrations, applied), problem: null };
  } catch (error) {
    if (!isHoldfastError(error)) throw error;
    return { pending: [], problem: error };
  }
}

async function storeOrNull(session: SchemaSession): Promise<StoreFacts | null> {
  try {
    return await readStore(session);
  } catch (error) {
    if (isHoldfastError(error, "schema_missing")) return null;
    throw error;
  }
}
