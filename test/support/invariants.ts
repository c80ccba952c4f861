import assert from "node:assert/strict";
import { findViolations } from "../../src/core/invariant.store.ts";
import { defaultPoolLimits, openPools } from "../../src/core/postgres/pool.ts";
import type { Database } from "../../src/core/postgres/transition.ts";
import { allInvariants } from "../../src/main/doctor.ts";
import { type TestDatabase, withClient } from "./database.ts";

/**
 * Asks the store, as `holdfast doctor` does, whether everything that is always true of it is true, whatever the
 * test did to it. Changes of the last minute may still be without a position.
 */
export async function assertInvariants(database: TestDatabase): Promise<void> {
  const epoch = await withClient(database.superuser, async (client) => {
    const { rows } = await client.query<{ epoch: string }>(
      "select deployment_epoch::text as epoch from holdfast.store",
    );
    return BigInt(rows[0]?.epoch ?? 1);
  });
  const limits = { ...defaultPoolLimits, connectionsMax: 1 };
  const pools = openPools({ settings: database.app, name: "test/invariants", limits });
  try {
    await assertInvariantsOf({ pools, deploymentEpoch: epoch, committed: () => undefined });
  } finally {
    await pools.close();
  }
}

export async function assertInvariantsOf(db: Database): Promise<void> {
  const found = await findViolations(db, allInvariants, { tenant: null, limit: 20 });
  const lines = found.map(({ check, tenant, resource, problem }) =>
    [check, tenant ?? "installation", resource, problem].join(": "),
  );
  assert.deepEqual(lines, [], "the store breaks what is always true");
}
