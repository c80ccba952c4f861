import { Client } from "pg";
import { HoldfastError } from "../errors.ts";
import { type Microseconds, seconds, toMilliseconds } from "../time.ts";
import { typeParsers } from "./codecs.ts";
import { addressOf, type ConnectionSettings, directOf } from "./pool.ts";
import { refusedLogin } from "./sqlstate.ts";

/**
 * One connection as the login itself, without a role and without the limits of a process: for the schema's
 * commands, which take roles and locks of their own. Never through a pooler. The caller ends it.
 */
export async function connectDirect(
  settings: ConnectionSettings,
  name: string,
  connectTimeout: Microseconds = seconds(10),
): Promise<Client> {
  const client = new Client({
    ...addressOf(directOf(settings)),
    application_name: name,
    connectionTimeoutMillis: toMilliseconds(connectTimeout),
    types: typeParsers,
    options: "-c TimeZone=UTC -c DateStyle=ISO -c search_path=pg_catalog,pg_temp",
  });
  // Without a listener a connection that breaks while idle would end the process; the next query tells.
  client.on("error", () => undefined);
  try {
    await client.connect();
  } catch (error) {
    const refused = refusedLogin(error);
    if (refused !== undefined) throw refused;
    const reason = error instanceof Error ? error.message : String(error);
    throw new HoldfastError("unavailable", `the database cannot be reached: ${reason}`, { cause: error });
  }
  return client;
}
