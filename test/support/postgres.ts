import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { processIdentity } from "../../src/dev/directory-lock.mjs";
import { type Postgres, type PostgresConnection, startPostgres } from "../../src/dev/postgres/server.ts";

/** By this variable `npm test` tells its test files of the one server that they share. */
export const sharedServerVariable = "HOLDFAST_TEST_POSTGRES";

/** A server whose data nobody misses. It and its folder go when this process does, also by SIGKILL. */
export async function startThrowawayPostgres(): Promise<Postgres> {
  await removeAbandoned();
  return startPostgres({
    directory: await mkdtemp(join(tmpdir(), `${folderPrefix}${process.pid}-`)),
    throwaway: true,
    settings: {
      fsync: "off",
      full_page_writes: "off",
      max_connections: "400",
      // The templates are small and copied often; background work would only disturb what tests measure.
      autovacuum_naptime: "10min",
      max_wal_senders: "0",
      wal_level: "minimal",
      log_checkpoints: "off",
    },
  });
}

const folderPrefix = "holdfast-test-";

/** A folder whose process was killed before it had a server, which would have taken the folder along. */
async function removeAbandoned(): Promise<void> {
  for (const entry of await readdir(tmpdir())) {
    const pid = entry.startsWith(folderPrefix)
      ? Number.parseInt(entry.slice(folderPrefix.length), 10)
      : Number.NaN;
    if (Number.isNaN(pid) || processIdentity(pid) !== null) continue;
    // Another user's stays his.
    await rm(join(tmpdir(), entry), { recursive: true, force: true }).catch(() => undefined);
  }
}

let server: Promise<PostgresConnection> | undefined;

/** The superuser's connection to the server of this run. A file that is run alone starts one for itself. */
export function testServer(): Promise<PostgresConnection> {
  server ??= sharedServer() ?? startThrowawayPostgres().then((postgres) => postgres.connection);
  return server;
}

function sharedServer(): Promise<PostgresConnection> | undefined {
  const text = process.env[sharedServerVariable];
  return text === undefined ? undefined : Promise.resolve(JSON.parse(text) as PostgresConnection);
}
