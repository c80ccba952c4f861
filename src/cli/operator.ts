import { type ConnectionSettings, openPools } from "../core/postgres/pool.ts";
import type { Database } from "../core/postgres/transition.ts";
import { checkCompatibility } from "../core/schema/compatibility.ts";

/** For commands that act on the store itself, with a login that has `holdfast_operator`. */
export async function withOperator<T>(
  settings: ConnectionSettings,
  name: string,
  body: (db: Database) => Promise<T>,
): Promise<T> {
  const pools = openPools({ settings, name });
  try {
    const store = await checkCompatibility(pools.of("operator"), { purpose: "write" });
    return await body({ pools, deploymentEpoch: store.deploymentEpoch, committed: () => undefined });
  } finally {
    await pools.close();
  }
}
