import { HoldfastError, isHoldfastError } from "../errors.ts";
import { judgeCompatibility, readStore, type StoreFacts } from "./compatibility.ts";
import { type AppliedMigration, pendingMigrations, readHistory } from "./history.ts";
import type { Migration } from "./migrations.ts";
import type { SchemaSession } from "./session.ts";
import { type SchemaRange, supportedSchema } from "./version.ts";

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
}

/** Look at the store without changing it, under whatever role the session has (M5). */
export async function schemaStatus(
  session: SchemaSession,
  migrations: readonly Migration[],
  supported: SchemaRange = supportedSchema,
): Promise<SchemaStatus> {
  const applied = (await readHistory(session)) ?? [];
  const { pending, problem } = plan(migrations, applied);
  const store = await storeOrNull(session);
  const verdict = (purpose: "read" | "write") =>
    store === null
      ? new HoldfastError("schema_missing", "the database has no Holdfast schema")
      : (judgeCompatibility(store, { purpose, supported }) ?? null);
  return { applied, pending, problem, store, supported, read: verdict("read"), write: verdict("write") };
}

function plan(
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
