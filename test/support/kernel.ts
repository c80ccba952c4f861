import { Client } from "pg";
import { brandId, type TenantId } from "../../src/core/ids.ts";
import { type ConnectionSettings, defaultPoolLimits, openPools } from "../../src/core/postgres/pool.ts";
import { statement } from "../../src/core/postgres/statement.ts";
import type { Database } from "../../src/core/postgres/transition.ts";
import { type Scope, type TestDatabase, testDatabase } from "./database.ts";

/** A store of its own, as a process reaches it, and a superuser's connection to look at it from outside. */
export interface Kernel {
  readonly db: Database;
  readonly database: TestDatabase;
  readonly settings: ConnectionSettings;
  /** How often `committed` was called. */
  readonly commits: () => number;
  /** Runs the hook when the test ends, the last one first, and before the pools close. */
  readonly after: (hook: () => unknown) => void;
  /** Whether somebody waits for a lock. */
  readonly blocked: () => Promise<boolean>;
  /** As a superuser, on one connection. */
  readonly ask: <Row extends object>(text: string, values?: readonly unknown[]) => Promise<Row[]>;
}

export const tenantA = brandId<TenantId>("tenant-a");
export const tenantB = brandId<TenantId>("tenant-b");

export async function openKernel(
  scope: Scope & { readonly after: (hook: () => Promise<void>) => void },
  options: { readonly committed?: () => void } = {},
): Promise<Kernel> {
  const database = await testDatabase(scope);
  const settings = database.app;
  const pools = openPools({ settings, name: "test", limits: { ...defaultPoolLimits, connectionsMax: 8 } });
  const hooks: (() => unknown)[] = [];
  const after = (hook: () => unknown) => void hooks.unshift(hook);
  scope.after(async () => {
    for (const hook of hooks) await hook();
  });
  after(() => pools.close());
  const superuser = new Client(database.superuser);
  superuser.on("error", () => undefined);
  await superuser.connect();
  after(() => superuser.end());
  const ask = async <Row extends object>(text: string, values: readonly unknown[] = []) =>
    (await superuser.query<Row>(text, [...values])).rows;
  let commits = 0;
  return {
    ask,
    after,
    async blocked() {
      const waiting = await ask(
        "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
      );
      return waiting.length > 0;
    },
    database,
    settings,
    db: {
      pools,
      deploymentEpoch: 1n,
      committed() {
        commits += 1;
        options.committed?.();
      },
    },
    commits: () => commits,
  };
}

/** A statement that only a test needs. Parameters are `$1`, `$2`, … and named `p1`, `p2`, …. */
export function adHoc<Row>(text: string, parameters: readonly `p${number}`[] = []) {
  return statement<Record<`p${number}`, unknown>, Row, "many">(
    `test.${text}`.slice(0, 60),
    "many",
    parameters,
    parameters.map(() => "plain"),
    text,
  );
}
