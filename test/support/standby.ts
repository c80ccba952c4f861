import { execFileSync } from "node:child_process";
import { chownSync, statSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Postgres, type PostgresConnection, startPostgres } from "../../src/dev/postgres/server.ts";
import { killServer } from "./crashing-postgres.ts";
import { withClient } from "./database.ts";
import { until } from "./until.ts";

/** A server, and another that follows it by streaming replication and answers reads. */
export interface StandbyPair {
  readonly primary: PostgresConnection;
  readonly standby: PostgresConnection;
  /** From now on a commit is answered when the standby has it too. */
  readonly synchronous: () => Promise<void>;
  /** SIGKILL. */
  readonly crashPrimary: () => Promise<void>;
  readonly promote: () => Promise<void>;
  readonly stop: () => Promise<void>;
}

const settings = { fsync: "off", autovacuum_naptime: "10min" };

export async function startStandbyPair(): Promise<StandbyPair> {
  const [here, there] = await Promise.all(["primary", "standby"].map(folder));
  if (here === undefined || there === undefined) throw new Error("two folders were made");
  let primary: Postgres = await startPostgres({ directory: here, settings });
  await primary.stop();
  // Its owner comes along: the server runs as another account than root.
  execFileSync("cp", ["-a", join(here, "cluster"), there]);
  const signal = join(there, "cluster", "data", "standby.signal");
  writeFileSync(signal, "");
  const { uid, gid } = statSync(join(there, "cluster", "data"));
  chownSync(signal, uid, gid);
  primary = await startPostgres({ directory: here, settings });
  const { host, port, user, password } = primary.connection;
  const source = `host=${host} port=${port} user=${user} password=${password}`;
  const standby = await startPostgres({
    directory: there,
    settings: { ...settings, primary_conninfo: source },
  });
  const ask = (connection: PostgresConnection, text: string) =>
    withClient(connection, async (client) => (await client.query(text)).rows as unknown[]);
  return {
    primary: primary.connection,
    standby: standby.connection,
    async synchronous() {
      await withClient(primary.connection, async (client) => {
        await client.query("alter system set synchronous_standby_names = '*'");
        await client.query("select pg_reload_conf()");
      });
      await until(
        "the standby is waited for",
        async () =>
          (await ask(primary.connection, "select from pg_stat_replication where sync_state = 'sync'"))
            .length === 1,
      );
    },
    crashPrimary: () => killServer(primary),
    async promote() {
      await ask(standby.connection, "select pg_promote()");
    },
    async stop() {
      await Promise.all([primary.stop(), standby.stop()]);
      for (const one of [here, there]) await rm(one, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

function folder(name: string): Promise<string> {
  return mkdtemp(join(tmpdir(), `holdfast-${name}-`));
}
