import { randomBytes } from "node:crypto";
import { connectDirect } from "../core/postgres/direct.ts";
import type { ConnectionSettings } from "../core/postgres/pool.ts";
import { applySchema } from "../core/schema/migrate.ts";
import { readMigrations, readRoles, releaseMigrations } from "../core/schema/migrations.ts";
import { readOnlineSteps, runOnlineSteps } from "../core/schema/online.ts";
import { applyRoles } from "../core/schema/roles.ts";
import type { PostgresConnection } from "./postgres/server.ts";

/** The name of a development store's database. */
export const database = "holdfast";
const login = "holdfast_dev";

/**
 * Bring the embedded server to the present schema, as the owner and as a step of its own, which the caller
 * announces (M1): database, roles, migrations, and a login for this process. The login's password is new each
 * time and kept in memory alone, so no file that a job could read has it.
 */
export async function prepareStore(
  server: PostgresConnection,
  installation: string,
  announce: (line: string) => void,
): Promise<ConnectionSettings> {
  const admin = await connectDirect({ ...server, database: "postgres" }, "holdfast/dev");
  try {
    const found = await admin.query("select from pg_database where datname = $1", [database]);
    if (found.rowCount === 0) await admin.query(`create database ${database} template template0`);
  } finally {
    await admin.end();
  }
  const password = randomBytes(24).toString("base64url");
  const session = await connectDirect({ ...server, database }, "holdfast/dev");
  try {
    const directory = await releaseMigrations();
    const migrations = await readMigrations(directory);
    await applyRoles(session, await readRoles(directory));
    const { applied, version } = await applySchema(session, { migrations, installation });
    announce(
      applied.length === 0
        ? `schema ${version} is in place`
        : `schema applied as holdfast_owner: ${applied.map((migration) => migration.name).join(", ")}`,
    );
    for (const { name } of await runOnlineSteps(session, {
      steps: await readOnlineSteps(directory),
      version,
    })) {
      announce(`online step ${name} has been run`);
    }
    await session.query(`
      do $login$ begin
        if not exists (select from pg_roles where rolname = '${login}') then
          create role ${login} login;
        end if;
      end $login$`);
    const secret = session.escapeLiteral(password);
    await session.query(`alter role ${login} password ${secret}`);
    await session.query(
      `grant holdfast_gateway, holdfast_controller, holdfast_dispatcher, holdfast_operator, holdfast_retention, holdfast_worker, holdfast_producer
       to ${login} with inherit false, set true`,
    );
  } finally {
    await session.end();
  }
  return { host: server.host, port: server.port, database, user: login, password };
}
