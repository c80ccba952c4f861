import { createHash, randomBytes } from "node:crypto";
import { join, resolve } from "node:path";
import { Client } from "pg";
import { applySchema } from "../../src/core/schema/migrate.ts";
import { type Migration, readMigrations, readRoles } from "../../src/core/schema/migrations.ts";
import { applyRoles } from "../../src/core/schema/roles.ts";
import type { PostgresConnection } from "../../src/dev/postgres/server.ts";
import { testServer } from "./postgres.ts";

/** One database of a test, and who can connect to it. */
export interface TestDatabase {
  readonly name: string;
  /** May do everything, also what no role of a deployment may. */
  readonly superuser: PostgresConnection;
  /** Acts as `holdfast_owner`, which applies migrations. */
  readonly owner: PostgresConnection;
  /** The runtime's login: it inherits nothing and takes one role a connection. */
  readonly app: PostgresConnection;
}

/** Whatever runs a hook at its end: a test's context, or `{ after }` from node:test for a whole file. */
export interface Scope {
  readonly after: (hook: () => void) => void;
}

const migrationsDirectory = join(resolve(import.meta.dirname, "../.."), "migrations");

const runtimeRoles = ["gateway", "controller", "worker", "producer", "dispatcher", "operator", "retention"];

/** Held while roles and the template are made: they belong to the server, which parallel test files share. */
const setUpLock = 7146290599n;

/** A database with the schema applied, for this scope alone. */
export async function testDatabase(scope: Scope): Promise<TestDatabase> {
  const server = await testServer();
  return cloned(scope, server, await migratedTemplate());
}

/** A database with the roles and no schema: for the tests of migrations. */
export async function emptyDatabase(scope: Scope): Promise<TestDatabase> {
  const server = await testServer();
  await migratedTemplate();
  return cloned(scope, server, "template0");
}

let template: Promise<string> | undefined;

function migratedTemplate(): Promise<string> {
  template ??= makeTemplate();
  return template;
}

async function makeTemplate(): Promise<string> {
  const server = await testServer();
  const [roles, migrations] = await Promise.all([
    readRoles(migrationsDirectory),
    readMigrations(migrationsDirectory),
  ]);
  const name = `template_${checksum(roles, migrations)}`;
  await withClient(server, async (client) => {
    await client.query("select pg_advisory_lock($1)", [setUpLock.toString()]);
    const found = await client.query("select from pg_database where datname = $1", [name]);
    if (found.rowCount !== 0) return;
    await client.query(`drop database if exists ${name}_new`);
    await client.query(`create database ${name}_new template template0`);
    await withClient({ ...server, database: `${name}_new` }, async (fresh) => {
      await applyRoles(fresh, roles);
      await applySchema(fresh, { migrations });
      await createLogins(fresh, server.password);
    });
    // A template that somebody is connected to cannot be copied.
    await client.query(`alter database ${name}_new allow_connections false`);
    await client.query(`alter database ${name}_new rename to ${name}`);
  });
  return name;
}

function checksum(roles: string, migrations: readonly Migration[]): string {
  const content = JSON.stringify([roles, migrations.map(({ name, checksum }) => [name, checksum])]);
  return createHash("sha256").update(content).digest("hex").slice(0, 16);
}

async function createLogins(client: Client, password: string): Promise<void> {
  const granted = runtimeRoles.map((role) => `holdfast_${role}`).join(", ");
  const login = `login password ${client.escapeLiteral(password)}`;
  await client.query(`
    do $logins$ begin
      if not exists (select from pg_roles where rolname = 'holdfast_app') then
        create role holdfast_app ${login};
        grant ${granted} to holdfast_app with inherit false, set true;
        create role holdfast_migrator ${login};
        grant holdfast_owner to holdfast_migrator with inherit false, set true;
        alter role holdfast_migrator set role = 'holdfast_owner';
      end if;
    end $logins$`);
}

async function cloned(scope: Scope, server: PostgresConnection, from: string): Promise<TestDatabase> {
  const name = `test_${process.pid}_${randomBytes(4).toString("hex")}`;
  await withClient(server, async (client) => {
    await client.query(`create database ${name} template ${from}`);
    // Rights on the database itself are not copied from a template.
    await client.query(`grant create, connect on database ${name} to holdfast_owner`);
  });
  // Not awaited: hooks run in the order in which they were added, and those that close the test's pools come
  // after this one. PostgreSQL waits some seconds for the last connection to go.
  scope.after(() => void dropDatabase(server, name));
  return {
    name,
    superuser: { ...server, database: name },
    owner: { ...server, user: "holdfast_migrator", database: name },
    app: { ...server, user: "holdfast_app", database: name },
  };
}

/** The server is a throwaway one: a database that cannot be dropped any more goes with it. */
async function dropDatabase(server: PostgresConnection, name: string): Promise<void> {
  try {
    await withClient(server, async (client) => {
      await client
        .query(`drop database if exists ${name}`)
        .catch(() => client.query(`drop database if exists ${name} with (force)`));
    });
  } catch {
    // The server has ended.
  }
}

/** Connects, runs the body, and disconnects, whatever happens. */
export async function withClient<T>(
  connection: PostgresConnection,
  body: (client: Client) => Promise<T>,
): Promise<T> {
  const client = new Client(connection);
  client.on("error", () => undefined);
  await client.connect();
  try {
    return await body(client);
  } finally {
    await client.end();
  }
}
