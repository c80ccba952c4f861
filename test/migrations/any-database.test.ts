import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { type TestContext, test } from "node:test";
import { Client } from "pg";
import { type ConnectionSettings, connect, openPools } from "../../src/core/postgres/pool.ts";
import { readCatalogue } from "../../src/core/schema/catalogue.ts";
import { checkCompatibility } from "../../src/core/schema/compatibility.ts";
import { applySchema } from "../../src/core/schema/migrate.ts";
import { readMigrations, readRoles } from "../../src/core/schema/migrations.ts";
import { runOnlineSteps } from "../../src/core/schema/online.ts";
import { applyRoles } from "../../src/core/schema/roles.ts";
import { verifySchema } from "../../src/core/schema/verify.ts";
import { createTenant } from "../../src/core/tenant.store.ts";
import { testDatabase, withClient } from "../support/database.ts";
import { testServer } from "../support/postgres.ts";

const directory = new URL("../../migrations", import.meta.url).pathname;
const migrations = await readMigrations(directory);
const effects = await readCatalogue(directory);
const recipe = await readRoles(directory);

/** Somebody else's database under a name that needs quoting, whose owner has no right beyond it. */
async function foreignDatabase(
  t: TestContext,
): Promise<{ dba: ConnectionSettings; superuser: ConnectionSettings }> {
  // The roles of the cluster are there; making them is another test's.
  await testDatabase(t);
  const server = await testServer();
  const name = `Übung "1"; drop ${randomBytes(4).toString("hex")}`;
  const login = `dba_${randomBytes(4).toString("hex")}`;
  await withClient(server, async (client) => {
    const password = client.escapeLiteral(server.password);
    await client.query(
      `create role ${login} login nosuperuser nocreaterole nocreatedb nobypassrls password ${password};
       grant holdfast_owner to ${login} with inherit false, set true`,
    );
    await client.query(`create database ${client.escapeIdentifier(name)} owner ${login} template template0`);
  });
  t.after(() =>
    withClient(server, async (client) => {
      await client.query(`drop database ${client.escapeIdentifier(name)} with (force)`);
      await client.query(`drop role ${login}`);
    }),
  );
  return { dba: { ...server, user: login, database: name }, superuser: { ...server, database: name } };
}

/** What is there already, and means to be found instead of ours. */
const neighbours = `
  create schema app;
  create table public.jobs (id int primary key, note text);
  create table app.leases (tenant_id text);
  insert into public.jobs values (1, 'theirs');
  create function public.ledger_now() returns timestamptz language sql as 'select ''2000-01-01''::timestamptz';
  create function app.current_setting(text, boolean) returns text language sql as 'select ''other''::text';
  create function app.clock_timestamp() returns timestamptz language sql as 'select ''2000-01-01''::timestamptz';`;

test("M3: the owner of a database of any name, beside other schemas, applies without superuser and without CREATEROLE", async (t) => {
  const { dba, superuser } = await foreignDatabase(t);
  await withClient(superuser, async (client) => {
    await client.query(neighbours);
    const name = client.escapeIdentifier(superuser.database);
    await client.query(`alter database ${name} set search_path = app, public, pg_catalog`);
    await client.query(`alter database ${name} set default_transaction_isolation = serializable`);
  });
  await withClient(dba, async (client) => {
    await applyRoles(client, recipe);
    await applySchema(client, { migrations, effects, installation: "theirs" });
    // Again, as every upgrade is: the login inherits nothing of what it has made.
    assert.deepEqual((await applySchema(client, { migrations, effects })).applied, []);
    assert.deepEqual(await runOnlineSteps(client, { steps: [], version: migrations.length }), []);
  });
  const fresh = await testDatabase(t);
  const expected = await withClient(fresh.superuser, (client) => verifySchema(client, migrations, effects));
  const found = await withClient(superuser, (client) => verifySchema(client, migrations, effects));
  assert.deepEqual(found, expected);
  await withClient(superuser, async (client) => {
    assert.deepEqual((await client.query("select * from public.jobs")).rows, [{ id: 1, note: "theirs" }]);
    const others = await client.query(
      "select n.nspname || '.' || c.relname as name from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname in ('app', 'public') and c.relkind = 'r' order by 1",
    );
    assert.deepEqual(others.rows, [{ name: "app.leases" }, { name: "public.jobs" }]);
  });

  // And what runs there is found by its own name alone.
  const pools = openPools({ settings: { ...superuser, user: "holdfast_app" }, name: "test" });
  t.after(() => pools.close());
  const store = await checkCompatibility(pools.of("operator"), { purpose: "write", installation: "theirs" });
  const db = { pools, deploymentEpoch: store.deploymentEpoch, committed: () => undefined };
  await createTenant(db, "acme");
  const { rows } = await pools
    .of("operator")
    .query<{ near: boolean }>(
      "select abs(extract(epoch from created_at - pg_catalog.now())) < 60 as near from holdfast.tenants",
    );
  assert.deepEqual(rows, [{ near: true }]);
  const one = await connect(pools.settings, "operator", "test");
  const isolation = await one.query<{ name: string }>(
    "select current_setting('transaction_isolation') as name",
  );
  await one.end();
  assert.deepEqual(isolation.rows, [{ name: "read committed" }]);
});

test("M3: a login with CREATEROLE alone makes the roles, and none of them is more than it should be", async () => {
  const server = await testServer();
  const prefix = `maker_${randomBytes(4).toString("hex")}_`;
  const login = `${prefix}dba`;
  const database = `${prefix}db`;
  await withClient(server, async (client) => {
    await client.query(
      `create role ${login} login createrole password ${client.escapeLiteral(server.password)}`,
    );
    await client.query(`create database ${database} owner ${login} template template0`);
  });
  const own = recipe.replaceAll("holdfast_", prefix);
  const client = new Client({ ...server, user: login, database });
  await client.connect();
  for (const _ of [1, 2]) await applyRoles(client, own);
  const { rows } = await client.query(
    `select count(*)::int as roles, bool_or(rolsuper or rolbypassrls or rolcreaterole or rolcanlogin or rolinherit) as mighty
     from pg_roles where starts_with(rolname, $1) and rolname <> $2`,
    [prefix, login],
  );
  assert.deepEqual(rows, [{ roles: 8, mighty: false }]);
  await client.end();
});
