import { HoldfastError, isHoldfastError } from "../errors.ts";
import { refusedLogin, sqlstateOf } from "../postgres/sqlstate.ts";
import { isMissing } from "./history.ts";
import { rowsOf, type SchemaSession } from "./session.ts";
import { type SchemaRange, supportedSchema } from "./version.ts";

/** Which store this is, and what it asks of those who use it. */
export interface StoreFacts {
  /** The last applied migration. */
  readonly version: number;
  /** Who reads must understand at least this schema version, who writes at least the other. */
  readonly readerFloor: number;
  readonly writerFloor: number;
  readonly installationId: string;
  readonly incarnationId: string;
  readonly deploymentEpoch: bigint;
}

export interface CompatibilityOptions {
  readonly purpose: "read" | "write";
  /** The installation that the process is configured for; left out, any will do. */
  readonly installation?: string;
  readonly supported?: SchemaRange;
}

/**
 * Every process calls this before it touches a row (M2). It reads with the rights of each runtime role (M5).
 * Throws `schema_missing`, `schema_incompatible` or `installation_mismatch`, which have their own exit codes.
 */
export async function checkCompatibility(
  session: SchemaSession,
  options: CompatibilityOptions,
): Promise<StoreFacts> {
  const facts = await readStore(session);
  const refusal = judgeCompatibility(facts, options);
  if (refusal !== undefined) throw refusal;
  return facts;
}

/**
 * Throws `schema_missing` when there is no store, also when the login has no right to see one, and
 * `invalid_configuration` when the login may not play the role.
 */
export async function readStore(session: SchemaSession): Promise<StoreFacts> {
  const [row] = await storeRows(session);
  if (row === undefined || row.version === null) {
    throw new HoldfastError("schema_missing", "the database has no complete Holdfast schema");
  }
  return {
    version: row.version,
    readerFloor: row.reader_floor,
    writerFloor: row.writer_floor,
    installationId: row.installation_id,
    incarnationId: row.incarnation_id,
    deploymentEpoch: BigInt(row.deployment_epoch),
  };
}

interface StoreRow {
  readonly version: number | null;
  readonly reader_floor: number;
  readonly writer_floor: number;
  readonly installation_id: string;
  readonly incarnation_id: string;
  readonly deployment_epoch: string;
}

async function storeRows(session: SchemaSession): Promise<StoreRow[]> {
  try {
    return await rowsOf<StoreRow>(
      session,
      `select (select max(version) from holdfast.schema_migrations) as version, reader_floor, writer_floor,
         installation_id, incarnation_id::text, deployment_epoch::text from holdfast.store`,
    );
  } catch (error) {
    if (isMissing(error)) return [];
    if (sqlstateOf(error) !== "42501") throw error;
    throw (
      refusedLogin(error) ??
      new HoldfastError(
        "schema_missing",
        `this login may not see the schema: grant it a role (${error instanceof Error ? error.message : ""})`,
        { cause: error },
      )
    );
  }
}

/** Throws `installation_mismatch` when there is a store and it is another's. One that can't be seen is left to others. */
export async function assertInstallation(
  session: SchemaSession,
  installation: string | undefined,
): Promise<void> {
  if (installation === undefined) return;
  const store = await readStore(session).catch((error: unknown) => {
    if (isHoldfastError(error, "schema_missing")) return null;
    throw error;
  });
  if (store !== null && store.installationId !== installation) throw mismatch(store, installation);
}

function mismatch({ installationId }: StoreFacts, installation: string): HoldfastError {
  return new HoldfastError(
    "installation_mismatch",
    `the store belongs to ${installationId}, this process to ${installation}`,
  );
}

/** Why this release may not use the store for the purpose; undefined when it may. */
export function judgeCompatibility(
  facts: StoreFacts,
  { purpose, installation, supported = supportedSchema }: CompatibilityOptions,
): HoldfastError | undefined {
  if (installation !== undefined && installation !== facts.installationId) {
    return mismatch(facts, installation);
  }
  if (facts.version < supported.minimum) {
    return new HoldfastError(
      "schema_incompatible",
      `the schema is at ${String(facts.version)}, this release needs ${String(supported.minimum)}: \`holdfast schema apply\``,
    );
  }
  const floor = purpose === "read" ? facts.readerFloor : facts.writerFloor;
  // A store ahead of this release is fine as long as its floors are not: migrations only add to what is there.
  if (floor > supported.maximum) {
    return new HoldfastError(
      "schema_incompatible",
      `the floor of those who ${purpose} is ${String(floor)}, this release understands up to ${String(supported.maximum)}: deploy a newer one`,
    );
  }
  return undefined;
}
