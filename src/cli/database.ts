import { postgresUrl } from "../config/postgres-url.ts";
import { databaseOf } from "../config.ts";
import { HoldfastError } from "../core/errors.ts";
import type { ConnectionSettings } from "../core/postgres/pool.ts";
import { runningStore } from "../dev/running.ts";
import type { CommandContext } from "./context.ts";
import { UsageError } from "./failures.ts";

/** The database that `--database-url` names. */
export function namedDatabase(url: string): ConnectionSettings {
  try {
    return postgresUrl(url);
  } catch (error) {
    throw new UsageError(`--database-url ${error instanceof Error ? error.message : String(error)}`);
  }
}

/**
 * The database of a command that works on it instead of on a server. The nearest word decides: the flag, the
 * environment, the development store that runs in this checkout.
 */
export function databaseFor(
  { config, directory }: Pick<CommandContext, "config" | "directory">,
  url: string | undefined,
): ConnectionSettings {
  if (url !== undefined) return namedDatabase(url);
  if (config.database !== null) return databaseOf(config);
  const running = runningStore(directory);
  if (running !== null) return running;
  throw noDatabase("and no development store runs in this checkout (`holdfast dev`)");
}

export function noDatabase(also: string): HoldfastError {
  return new HoldfastError(
    "invalid_configuration",
    `no database is named, ${also}: set HOLDFAST_DATABASE_URL or give --database-url`,
  );
}
