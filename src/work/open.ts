import { postgresUrl } from "../config/postgres-url.ts";
import { HoldfastError } from "../core/errors.ts";
import { brandId, isTenantId, type TenantId } from "../core/ids.ts";
import { openDoorbell } from "../core/postgres/doorbell.ts";
import { defaultPoolLimits, openPools } from "../core/postgres/pool.ts";
import type { ConnectionSettings, PoolLimits } from "../core/postgres/settings.ts";
import { translate, translateFirst } from "../core/postgres/sqlstate.ts";
import type { Database } from "../core/postgres/transition.ts";
import { checkCompatibility } from "../core/schema/compatibility.ts";
import type { WorkDefinition } from "./define.ts";
import type { Work } from "./handle.ts";
import {
  checkItems,
  isTooLarge,
  namedTooLarge,
  type SubmitItem,
  type SubmitOptions,
  submissionNames,
} from "./item.ts";
import { refuseUnknown } from "./known-names.ts";
import { isOpenedWork, type OpenedWork } from "./opened.ts";
import { shareSubmissions } from "./submissions.ts";
import {
  batchMax,
  type PreparedItem,
  prepared,
  type Queryable,
  type Submitted,
  submitAlone,
  submitOn,
} from "./submit.ts";
import { registerVersion } from "./version.store.ts";

export interface OpenWorkOptions {
  /**
   * `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`, or its parts. The login is a member of the roles that it plays. As
   * HOLDFAST_DATABASE_URL has it: elsewhere than on this machine the server's certificate is verified. May be
   * undefined, as what comes from the environment may, and is refused then.
   */
  readonly database: string | ConnectionSettings | undefined;
  readonly tenant?: string;
  /** Of the process, for people who look at the store. */
  readonly name?: string;
  readonly installation?: string;
  readonly limits?: Partial<PoolLimits>;
  readonly onError?: (error: unknown, what: string) => void;
}

/**
 * Connect, and check that this release and the store's schema fit each other before a row is touched (M2).
 *
 * Throws `invalid_configuration` when the server refuses the login or it may not play `holdfast_producer`,
 * `schema_missing` when there is no role or no schema, `schema_incompatible`, `installation_mismatch` or `unavailable`.
 */
export async function openWork(options: OpenWorkOptions): Promise<Work> {
  refuseUnknown(options, openNames, []);
  const settings = addressed(options.database);
  const name = options.name ?? "work";
  const onError = options.onError ?? report;
  const tenant = options.tenant === undefined ? null : checkedTenant(options.tenant);
  const pools = openPools({
    settings,
    name: `holdfast/${name}`,
    limits: { ...defaultPoolLimits, ...options.limits },
    onError: (error) => onError(error, "an idle connection broke"),
  });
  try {
    const store = await checkCompatibility(pools.of("producer"), {
      purpose: "write",
      ...(options.installation === undefined ? {} : { installation: options.installation }),
    }).catch(rethrowFirst);
    const doorbell = openDoorbell({
      settings,
      // A program that only submits plays no other role.
      role: "producer",
      name: `holdfast/${name}`,
      onError: (error) => onError(error, "the doorbell's connection broke"),
    });
    const db: Database = { pools, deploymentEpoch: store.deploymentEpoch, committed: () => doorbell.ring() };
    const opened: OpenedWork = {
      db,
      doorbell,
      settings,
      name,
      tenant,
      onError,
      submitShared: shareSubmissions((call) => submitAlone(pools.of("producer"), call)),
      async register(...works) {
        for (const work of works) await registerVersion(db, work as WorkDefinition).catch(rethrowFirst);
      },
      wake: () => doorbell.ring(),
      async close() {
        await doorbell.close();
        await pools.close();
      },
    };
    return opened;
  } catch (error) {
    await pools.close();
    throw error;
  }
}

const openNames: ReadonlySet<string> = new Set(
  Object.keys({
    database: true,
    tenant: true,
    name: true,
    installation: true,
    limits: true,
    onError: true,
  } satisfies Record<keyof OpenWorkOptions, true>),
);

/** Options of one submission; `tenant` is needed where the handle has none, and inside a caller's transaction. */
export type Submission = SubmitOptions & { readonly tenant?: string };

/**
 * Accept one item. With the handle it is durable when this resolves. With a connection of the `pg` driver it is part
 * of that connection's own transaction and commits or vanishes with it (W13): call `wake()` after the commit, or it
 * is found within a second or two.
 *
 * Throws `idempotency_conflict`, `work_not_registered`, `work_retired`, `deadline_elapsed`, `tenant_disabled` or
 * `invalid_request`.
 */
export async function submit<Input>(
  on: Work | Queryable,
  work: WorkDefinition<Input>,
  input: Input,
  options: Submission = {},
): Promise<Submitted> {
  refuseUnknown(options, submissionNames, []);
  const { tenant, ...rest } = options;
  const [one] = await accepted(on, work, [{ ...rest, input }], { tenant, alone: true });
  if (one === undefined) throw new Error("one item gives one answer");
  return one;
}

/** Accept many: all of them, or none. In the order of the items. All are one tenant's. */
export async function submitAll<Input>(
  on: Work | Queryable,
  work: WorkDefinition<Input>,
  items: readonly SubmitItem<Input>[],
  options: { readonly tenant?: string } = {},
): Promise<Submitted[]> {
  refuseUnknown(options, callNames, []);
  checkItems(items);
  return accepted(on, work, items, { tenant: options.tenant, alone: false });
}

const callNames: ReadonlySet<string> = new Set(["tenant"]);

async function accepted<Input>(
  on: Work | Queryable,
  work: WorkDefinition<Input>,
  items: readonly SubmitItem<Input>[],
  { tenant: named, alone }: { readonly tenant: string | undefined; readonly alone: boolean },
): Promise<Submitted[]> {
  const handle = isOpenedWork(on) ? on : null;
  const tenant = named === undefined ? (handle?.tenant ?? null) : checkedTenant(named);
  if (tenant === null) throw new HoldfastError("invalid_request", "name the tenant that the work is for");
  const all = await prepared(work, items, { alone });
  const call = (part: PreparedItem[], deploymentEpoch: bigint | null) => ({
    tenant,
    deploymentEpoch,
    name: work.name,
    version: work.version,
    items: part,
  });
  if (all.length === 0) return [];
  const told = (error: unknown): never => {
    throw isTooLarge(error) ? namedTooLarge(all, alone) : translate(error);
  };
  if (handle === null) {
    if (!("query" in on)) throw new HoldfastError("invalid_request", "submit with a `Work` or a connection");
    return inParts(all, (part) => submitOn(on, { ...call(part, null), named: false })).catch(told);
  }
  const { db } = handle;
  const submitted = await (all.length <= batchMax
    ? handle.submitShared(call(all, db.deploymentEpoch))
    : inTransaction(db, (connection) =>
        inParts(all, (part) => submitOn(connection, { ...call(part, db.deploymentEpoch), named: true })),
      )
  ).catch(told);
  handle.wake();
  return submitted;
}

async function inParts(
  items: PreparedItem[],
  send: (part: PreparedItem[]) => Promise<Submitted[]>,
): Promise<Submitted[]> {
  const submitted: Submitted[] = [];
  for (let from = 0; from < items.length; from += batchMax)
    submitted.push(...(await send(items.slice(from, from + batchMax))));
  return submitted;
}

async function inTransaction<T>(db: Database, body: (connection: Queryable) => Promise<T>): Promise<T> {
  const client = await db.pools.of("producer").connect();
  let broken: Error | undefined;
  const onError = (error: Error) => {
    broken = error;
  };
  client.on("error", onError);
  try {
    await client.query("begin isolation level read committed");
    const result = await body(client);
    await client.query("commit");
    return result;
  } catch (error) {
    await client.query("rollback").catch((fault: Error) => {
      broken = fault;
    });
    throw translate(error);
  } finally {
    client.off("error", onError);
    client.release(broken);
  }
}

function addressed(database: OpenWorkOptions["database"]): ConnectionSettings {
  if (typeof database === "object" && database !== null) return database;
  try {
    return postgresUrl(typeof database === "string" ? database : "");
  } catch (error) {
    const wrong = error instanceof Error ? error.message : "is no address";
    throw new HoldfastError("invalid_configuration", `the database's address ${wrong}`);
  }
}

/** What a role does first tells whether the login may play it. */
function rethrowFirst(error: unknown): never {
  throw translateFirst(error);
}

export function checkedTenant(text: string): TenantId {
  if (!isTenantId(text))
    throw new HoldfastError("invalid_request", "a tenant is named by 1 to 63 of a-z, 0-9 and inner hyphens");
  return brandId<TenantId>(text);
}

function report(error: unknown, what: string): void {
  console.error(`holdfast: ${what}:`, error instanceof Error ? error.message : error);
}
