/**
 * `holdfast/testing`: a real PostgreSQL with the schema, thrown away at the end, and a clock that the test moves.
 * The controlled clock exists here alone: no migration and no generated script has it (W8).
 */
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connectDirect } from "../core/postgres/direct.ts";
import type { ConnectionSettings } from "../core/postgres/settings.ts";
import { formatInstant, type Instant, instant } from "../core/time.ts";
import { startPostgres } from "./postgres/server.ts";
import { prepareStore } from "./store.ts";

export { type Instant, instant, type Microseconds, microseconds, seconds } from "../core/time.ts";

/** A clock that stands still until it is moved: the database's own, for everything that Work decides. */
export interface Clock {
  readonly now: () => Instant;
  readonly set: (at: Instant) => Promise<void>;
  readonly advance: (by: bigint) => Promise<void>;
}

export interface TestServer {
  /** For `openWork`: a login that may do what a program of Work does. */
  readonly database: ConnectionSettings;
  /** Rows as a superuser sees them, to look at what was stored. */
  readonly query: <Row>(text: string, values?: unknown[]) => Promise<Row[]>;
  /** Puts the database's clock under the test's control, from this instant on. */
  readonly controlClock: (start?: Instant) => Promise<Clock>;
  /** Ends the server and removes all of it. */
  stop(): Promise<void>;
}

type Query = (text: string) => Promise<unknown>;

/** Starts a server of its own, applies the schema and makes the tenants. About two seconds. */
export async function startTestServer({
  tenants = ["test"],
  log = () => undefined,
}: {
  readonly tenants?: readonly string[];
  readonly log?: (line: string) => void;
} = {}): Promise<TestServer> {
  const postgres = await startPostgres({
    directory: await mkdtemp(join(tmpdir(), "holdfast-testing-")),
    throwaway: true,
    settings: { fsync: "off", full_page_writes: "off" },
    log,
  });
  try {
    const database = await prepareStore(postgres.connection, "testing", log);
    const session = await connectDirect(
      { ...postgres.connection, database: database.database },
      "holdfast/testing",
    );
    const query = async <Row>(text: string, values: unknown[] = []) =>
      (await session.query(text, values)).rows as Row[];
    for (const tenant of tenants)
      await query("insert into holdfast.tenants (tenant_id) values ($1)", [tenant]);
    return {
      database,
      query,
      controlClock: (start) => controlClock((text) => session.query(text), start),
      async stop() {
        await session.end();
        await postgres.stop();
      },
    };
  } catch (error) {
    await postgres.stop();
    throw error;
  }
}

/** For a database that the test owns: replaces its clocks. Again begins anew, from the instant that is given. */
export async function controlClock(
  query: Query,
  start: Instant = instant(1_800_000_000_000_000n),
): Promise<Clock> {
  let at = start;
  const text = () => formatInstant(at);
  await query(`
    create schema if not exists controlled;
    create table if not exists controlled.clock (at timestamptz not null);
    delete from controlled.clock;
    insert into controlled.clock values ('${text()}');
    grant usage on schema controlled to public;
    grant select on controlled.clock to public;
    create or replace function holdfast.work_execution_now() returns timestamptz
      language sql volatile security invoker parallel safe as 'select at from controlled.clock';
    create or replace function holdfast.ledger_now() returns timestamptz
      language sql volatile security invoker parallel safe as 'select at from controlled.clock'`);
  const set = async (to: Instant) => {
    at = to;
    await query(`update controlled.clock set at = '${text()}'`);
  };
  return { now: () => at, set, advance: (by) => set(instant(at + by)) };
}
