import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "pg";
import type { ConnectionSettings } from "../../src/core/postgres/pool.ts";
import { startPostgres } from "../../src/dev/postgres/server.ts";
import { database as prepared, prepareStore } from "../../src/dev/store.ts";

/** The one server of a run, with databases of its own for everything that is measured. */
export interface Server {
  readonly pid: number;
  /** An empty database, as the superuser. */
  readonly database: (name: string) => Promise<ConnectionSettings>;
  /** A store of its own: the schema of this release, the tenants, no row of work. */
  readonly store: (name: string, tenants: readonly string[]) => Promise<ConnectionSettings>;
  readonly drop: (name: string) => Promise<void>;
  /** The superuser's connection to a database. */
  readonly admin: (name: string) => Promise<Client>;
  readonly stop: () => Promise<void>;
}

export async function startServer(): Promise<Server> {
  const postgres = await startPostgres({
    directory: await mkdtemp(join(tmpdir(), "holdfast-bench-")),
    throwaway: true,
    settings: {
      shared_buffers: "512MB",
      max_wal_size: "4GB",
      checkpoint_timeout: "30min",
      max_connections: "200",
    },
  });
  // The others are copies of this one, which is never written to.
  const app = await prepareStore(postgres.connection, "bench", () => undefined);
  const admin = async (database: string) => {
    const client = new Client({ ...postgres.connection, database });
    await client.connect();
    return client;
  };
  const ask = async (database: string, text: string, values: readonly unknown[] = []) => {
    const client = await admin(database);
    await client.query(text, [...values]);
    await client.end();
  };
  return {
    pid: postgres.pid,
    admin,
    async database(name) {
      await ask("postgres", `create database ${name}`);
      return { ...postgres.connection, database: name };
    },
    async store(name, tenants) {
      await ask("postgres", `create database ${name} template ${prepared}`);
      await ask(name, "insert into holdfast.tenants (tenant_id) select unnest($1::text[])", [tenants]);
      return { ...app, database: name };
    },
    drop: (name) => ask("postgres", `drop database ${name} with (force)`),
    stop: () => postgres.stop(),
  };
}

export const urlOf = ({ user, password, host, port, database }: ConnectionSettings) =>
  `postgresql://${encodeURIComponent(user)}:${encodeURIComponent(password)}@/${database}?host=${encodeURIComponent(host)}&port=${port}`;
