import { type ConnectionSettings, openPools } from "../core/postgres/pool.ts";
import { translateFirst } from "../core/postgres/sqlstate.ts";
import type { Database } from "../core/postgres/transition.ts";
import { checkCompatibility } from "../core/schema/compatibility.ts";
import type { CommandContext } from "./context.ts";
import { databaseFor } from "./database.ts";

export interface OperatorStore {
  readonly settings: ConnectionSettings;
  /** A store of another one is refused. */
  readonly installation: string | undefined;
}

/** The store of a command, as its flag, the environment or this checkout name it. */
export function operatorStore(
  context: Pick<CommandContext, "config" | "directory">,
  url?: string,
): OperatorStore {
  return {
    settings: databaseFor(context, url),
    installation: context.config.installation ?? undefined,
  };
}

/** For commands that act on the store itself, with a login that has `holdfast_operator`. */
export async function withOperator<T>(
  { settings, installation }: OperatorStore,
  name: string,
  body: (db: Database) => Promise<T>,
): Promise<T> {
  const pools = openPools({ settings, name });
  try {
    const store = await checkCompatibility(pools.of("operator"), {
      purpose: "write",
      ...(installation === undefined ? {} : { installation }),
    }).catch((error: unknown) => {
      throw translateFirst(error);
    });
    return await body({ pools, deploymentEpoch: store.deploymentEpoch, committed: () => undefined });
  } finally {
    await pools.close();
  }
}
