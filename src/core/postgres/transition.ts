import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import type { ErrorCode } from "../../wire/errors.ts";
import { HoldfastError, isHoldfastError } from "../errors.ts";
import type { IncarnationId, TenantId } from "../ids.ts";
import { insideTransition } from "../outside.ts";
import type { Instant } from "../time.ts";
import { encodeParameters } from "./codecs.ts";
import type { Pools, Role } from "./pool.ts";
import { isReadOnly, isRetryable, translate } from "./sqlstate.ts";
import type { Cardinality, Result, Statement } from "./statement.ts";
import { inlined, together } from "./together.ts";
import { assertFence, type BeginTransitionRow, beginTransition } from "./transition.sql.ts";

/** What a process needs to write: its pools, the deployment it belongs to, and whom to tell after a commit. */
export interface Database {
  readonly pools: Pools;
  readonly deploymentEpoch: bigint;
  /** Called after each commit of a transition, so that whoever waits for work looks again. Never throws. */
  readonly committed: () => void;
  /** Called with the code of what the database refused because another is in charge. For counting; never throws. */
  readonly refused?: (code: ErrorCode) => void;
}

export interface Scope {
  readonly role: Role;
  /** Null only for what belongs to the installation: leases over all tenants, positions, tenants themselves. */
  readonly tenant: TenantId | null;
  /** W3C trace context of what this is done for: commands, changes and jobs written in it carry it. */
  readonly traceparent?: string | null;
}

/** The pair that every write under a lease presents: who holds it, and under which epoch (E6). */
export interface Fence {
  readonly kind: string;
  readonly resource: string;
  readonly holder: IncarnationId;
  readonly epoch: bigint;
}

/** An open transaction. Its statements run one after the other. */
export interface Transaction {
  /** The database's clock when the transition began. A cutoff samples again, in SQL, after its row lock. */
  readonly now: Instant;
  run<P, R, C extends Cardinality>(statement: Statement<P, R, C>, params: P): Promise<Result<R, C>>;
}

const triesMax = 6;
/** A lease that is another's, a sandbox that may not report any more, a process of an earlier deployment. */
const fenceCodes: ReadonlySet<ErrorCode> = new Set(["fenced", "sandbox_fenced", "deployment_fenced"]);

/**
 * The only way to write. Opens a READ COMMITTED transaction, names the tenant for row-level security, refuses
 * a process of another deployment epoch (HF004), asserts the fence when one is given (HF001), and runs the
 * body. 40001 and 40P01 run the whole again, at most five times with backoff (G14): the body must not keep
 * anything from a run that did not commit. Locks are taken in the order command, lease, job, attempt,
 * sandbox, slot, change, outbox.
 */
export async function transition<T>(
  db: Database,
  scope: Scope & { readonly name: string; readonly fence?: Fence },
  body: (tx: Transaction) => Promise<T>,
): Promise<T> {
  const result = await insideTransition(scope.name, () =>
    retrying(db, scope, "begin isolation level read committed", body),
  );
  db.committed();
  return result;
}

/** One consistent look: REPEATABLE READ, READ ONLY, under the same row-level security. */
export function view<T>(
  db: Database,
  scope: Scope & { readonly name: string },
  body: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return insideTransition(scope.name, () =>
    retrying(db, scope, "begin isolation level repeatable read, read only", body),
  );
}

/** One statement of its own, outside any tenant, for the loops that look around. */
export async function runAlone<P, R, C extends Cardinality>(
  db: Pick<Database, "pools">,
  role: Role,
  statement: Statement<P, R, C>,
  params: P,
): Promise<Result<R, C>> {
  return execute(db.pools.of(role), statement, params).catch((error: unknown) => {
    throw translate(error);
  });
}

async function retrying<T>(
  db: Database,
  scope: Scope & { readonly name: string; readonly fence?: Fence },
  begin: string,
  body: (tx: Transaction) => Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await once(db, scope, begin, body);
    } catch (error) {
      if (!isRetryable(error) || attempt === triesMax) throw noted(db, translate(error));
      await delay(Math.random() * 10 * 2 ** attempt);
    }
  }
}

function noted(db: Database, error: unknown): unknown {
  const fenced = isHoldfastError(error) && fenceCodes.has(error.code);
  if (fenced) db.refused?.(error.code);
  return error;
}

async function once<T>(
  db: Database,
  scope: Scope & { readonly fence?: Fence },
  begin: string,
  body: (tx: Transaction) => Promise<T>,
): Promise<T> {
  const client = await db.pools.of(scope.role).connect();
  let broken: Error | undefined;
  let ended = false;
  // A checked-out client that loses its connection emits `error`; unheard, it would end the process.
  const onError = (error: Error) => {
    broken = error;
  };
  client.on("error", onError);
  try {
    const now = await open(client, begin, scope, db.deploymentEpoch);
    const result = await body({
      now,
      async run(statement, params) {
        // What a failed body left behind must not reach the connection's next transaction.
        if (ended) throw new Error(`${statement.name} came after the end of its transaction`);
        return execute(client, statement, params);
      },
    });
    ended = true;
    const { command } = await client.query("commit");
    // COMMIT of a transaction in which a statement failed rolls back, and says so only here.
    if (command !== "COMMIT") throw new Error("the body went on after a statement had failed");
    return result;
  } catch (error) {
    ended = true;
    if (isReadOnly(error) && error instanceof Error) broken = error;
    await client.query("rollback").catch((fault: Error) => {
      broken = fault;
    });
    throw error;
  } finally {
    client.off("error", onError);
    client.release(broken);
  }
}

/** The first exchange of every transaction: it begins, says whose it is, and shows its fence. Gives the time. */
async function open(
  client: pg.PoolClient,
  begin: string,
  { tenant, traceparent = null, fence }: Scope & { readonly fence?: Fence },
  deployment_epoch: bigint,
): Promise<Instant> {
  const text = together(
    begin,
    inlined(beginTransition, { tenant, deployment_epoch, traceparent }),
    ...(fence === undefined ? [] : [inlined(assertFence, fence)]),
  );
  // The driver's types know of one result: of several statements it gives as many.
  const [, opened] = (await client.query(text)) as unknown as pg.QueryResult<BeginTransitionRow>[];
  const [row] = opened?.rows ?? [];
  if (row === undefined) throw new Error("the transaction told no time");
  return row.now;
}

async function execute<P, R, C extends Cardinality>(
  client: pg.Pool | pg.PoolClient | pg.Client,
  statement: Statement<P, R, C>,
  params: P,
): Promise<Result<R, C>> {
  const result = await client.query({
    name: statement.name,
    text: statement.text,
    values: encodeParameters(statement, params),
  });
  const rows = result.rows as R[];
  return shape(statement, rows, result.rowCount ?? 0) as Result<R, C>;
}

function shape<P, R>(
  statement: Statement<P, R, Cardinality>,
  rows: R[],
  count: number,
): R | R[] | number | undefined {
  switch (statement.cardinality) {
    case "one":
      if (rows.length !== 1)
        throw new HoldfastError("not_found", `${statement.name} gave ${rows.length} rows instead of one`);
      return rows[0];
    case "maybe":
      if (rows.length > 1)
        throw new Error(`${statement.name} gave ${rows.length} rows instead of at most one`);
      return rows[0];
    case "many":
      return rows;
    case "exec":
      return count;
    default:
      return statement.cardinality satisfies never;
  }
}

/** For the connections that live outside the pools. */
export const runOn = execute;
