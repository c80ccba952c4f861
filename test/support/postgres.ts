import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Postgres, type PostgresConnection, startPostgres } from "../../src/dev/postgres/server.ts";

/** By this variable `npm test` tells its test files of the one server that they share. */
export const sharedServerVariable = "HOLDFAST_TEST_POSTGRES";

/** A server whose data nobody misses. It and its folder go when this process does, also by SIGKILL. */
export async function startThrowawayPostgres(): Promise<Postgres> {
  return startPostgres({
    directory: await mkdtemp(join(tmpdir(), "holdfast-test-")),
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
