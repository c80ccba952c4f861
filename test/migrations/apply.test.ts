import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { type TestContext, test } from "node:test";
import { Client } from "pg";
import pc from "picocolors";
import { lex } from "../../scripts/statements/lexer.ts";
import { failureText } from "../../src/cli/failures.ts";
import { isHoldfastError } from "../../src/core/errors.ts";
import { applySchema } from "../../src/core/schema/migrate.ts";
import { type Migration, readMigrations, readRoles } from "../../src/core/schema/migrations.ts";
import { applyRoles } from "../../src/core/schema/roles.ts";
import { microseconds, seconds } from "../../src/core/time.ts";
import type { PostgresConnection } from "../../src/dev/postgres/server.ts";
import { emptyDatabase, testDatabase } from "../support/database.ts";
import { schemaLines } from "./schema-digest.ts";

const directory = new URL("../../migrations", import.meta.url).pathname;

function migration(version: number, name: string, sql: string): Migration {
  return { version, name, sql, checksum: createHash("sha256").update(sql).digest("hex") };
}

const colors = pc.createColors(false);
const first = migration(1, "first", "create table holdfast.first (id int primary key);");
const second = migration(2, "second", "create table holdfast.second (id int primary key);");

async function connect(t: TestContext, connection: PostgresConnection): Promise<Client> {
  const client = new Client(connection);
  client.on("error", () => undefined);
  await client.connect();
  t.after(() => client.end());
  return client;
}

/** Wait on a condition of the server, not on time. */
async function until(client: Client, condition: string): Promise<void> {
  const deadline = Date.now() + 10_000;
  while (Date.now() < deadline) {
    const { rows } = await client.query<{ met: boolean }>(`select exists (${condition}) as met`);
    if (rows[0]?.met === true) return;
  }
  throw new Error(`never met: ${condition}`);
}

async function tables(client: Client): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    "select tablename as name from pg_tables where schemaname = 'holdfast' order by 1",
  );
  return rows.map((row) => row.name);
}

test("M1: migrations are applied in order, and applying again changes nothing", async (t) => {
  const { owner } = await emptyDatabase(t);
  const client = await connect(t, owner);
  const migrations = await readMigrations(directory);
  const order: number[] = [];
  const done = await applySchema(client, { migrations, onApplied: ({ version }) => order.push(version) });
  assert.deepEqual(
    order,
    migrations.map(({ version }) => version),
  );
  assert.equal(done.version, migrations.length);

  const before = await schemaLines(client);
  const again = await applySchema(client, { migrations });
  assert.deepEqual(again, { applied: [], version: migrations.length });
  assert.deepEqual(await schemaLines(client), before);
});

test("M1: the history keeps each file's SHA-256 and who applied it", async (t) => {
  const { owner } = await emptyDatabase(t);
  const client = await connect(t, owner);
  await applySchema(client, { migrations: [first] });
  const { rows } = await client.query(
    "select version, name, checksum, applied_by, duration_us >= 0 as measured from holdfast.schema_migrations",
  );
  const expected = { version: 1, name: "first", checksum: first.checksum, applied_by: "holdfast_migrator" };
  assert.deepEqual(rows, [{ ...expected, measured: true }]);
});

test("M1: a migration that fails leaves nothing of itself, and says where it failed", async (t) => {
  const { owner } = await emptyDatabase(t);
  const client = await connect(t, owner);
  const broken = migration(2, "broken", "create table holdfast.half ();\n\nselect nonsense;");
  await assert.rejects(
    applySchema(client, { migrations: [first, broken] }),
    (error) => isHoldfastError(error, "migration_failed") && error.detail.startsWith("0002_broken line 3: "),
  );
  assert.deepEqual(await tables(client), ["first", "schema_migrations", "schema_online_steps"]);

  await applySchema(client, { migrations: [first, second] });
  assert.deepEqual(await tables(client), ["first", "schema_migrations", "schema_online_steps", "second"]);
});

test("M1: two that apply at once take turns, and each migration runs once", async (t) => {
  const { owner } = await emptyDatabase(t);
  const clients = await Promise.all([connect(t, owner), connect(t, owner), connect(t, owner)]);
  const results = await Promise.all(
    clients.map((client) => applySchema(client, { migrations: [first, second] })),
  );
  const applied = results.flatMap((result) => result.applied.map(({ version }) => version));
  assert.deepEqual(
    applied.sort((a, b) => a - b),
    [1, 2],
  );
});

test("M1: a connection killed in the middle of a migration leaves nothing, and the next apply goes on", async (t) => {
  const { owner, superuser } = await emptyDatabase(t);
  const admin = await connect(t, superuser);
  const client = await connect(t, owner);
  const slow = migration(2, "second", `${second.sql} select pg_sleep(60);`);
  const cut = assert.rejects(applySchema(client, { migrations: [first, slow] }));
  const sleeping = `select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`;
  await until(admin, sleeping);
  await admin.query(
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'",
  );
  await cut;
  assert.deepEqual(await tables(admin), ["first", "schema_migrations", "schema_online_steps"]);

  const result = await applySchema(await connect(t, owner), { migrations: [first, second] });
  assert.deepEqual(result.applied, [second]);
});

test("M1: an apply that waits for another one ends with schema_busy at its limit", async (t) => {
  const { owner, superuser } = await emptyDatabase(t);
  const admin = await connect(t, superuser);
  const slow = migration(1, "slow", "select pg_sleep(60);");
  const running = assert.rejects(applySchema(await connect(t, owner), { migrations: [slow] }));
  await until(
    admin,
    "select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'",
  );
  await assert.rejects(
    applySchema(await connect(t, owner), { migrations: [first], turnTimeout: microseconds(50_000n) }),
    (error) => isHoldfastError(error, "schema_busy"),
  );
  await admin.query(
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
  );
  await running;
});

test("M1: a migration waits for a table's lock no longer than its limit, and leaves nothing", async (t) => {
  const { owner } = await emptyDatabase(t);
  const client = await connect(t, owner);
  await applySchema(client, { migrations: [first] });
  const reader = await connect(t, owner);
  await reader.query("begin; select from holdfast.first");
  const change = migration(2, "change", "alter table holdfast.first add column note text;");
  await assert.rejects(
    applySchema(client, { migrations: [first, change], lockTimeout: microseconds(50_000n) }),
    (error) => isHoldfastError(error, "schema_busy"),
  );
  await reader.query("commit");
  assert.deepEqual((await applySchema(client, { migrations: [first, change] })).applied, [change]);
});

test("M1: other bytes, another name or a missing file of an applied migration are drift, and change nothing", async (t) => {
  const { owner } = await emptyDatabase(t);
  const client = await connect(t, owner);
  await applySchema(client, { migrations: [first] });
  const before = await schemaLines(client);
  const edited = migration(1, "first", `${first.sql} -- edited`);
  for (const migrations of [
    [edited, second],
    [{ ...first, name: "renamed" }, second],
  ]) {
    await assert.rejects(
      applySchema(client, { migrations }),
      (error) =>
        isHoldfastError(error, "schema_drift") &&
        // Once: by the catalogue of errors, and not by the detail as well.
        failureText(error, colors).split("holdfast dev --reset").length === 2,
    );
  }
  await assert.rejects(applySchema(client, { migrations: [] }), (error) =>
    isHoldfastError(error, "schema_incompatible"),
  );
  assert.deepEqual(await schemaLines(client), before);
});

test("M1: no runtime role can apply, and neither can a login without the owner", async (t) => {
  const { app } = await testDatabase(t);
  const client = await connect(t, app);
  for (const role of ["none", "holdfast_gateway", "holdfast_controller", "holdfast_operator"]) {
    await client.query(`set role ${role}`);
    await assert.rejects(applySchema(client, { migrations: [first] }), (error) =>
      isHoldfastError(error, "owner_required"),
    );
  }
});

test("M1: apply gives its session back as it came", async (t) => {
  const { superuser } = await emptyDatabase(t);
  const client = await connect(t, superuser);
  const state = async () => {
    const { rows } = await client.query(
      `select current_user, current_setting('search_path') as path, current_setting('lock_timeout') as lock,
         current_setting('holdfast.installation', true) as installation,
         (select count(*)::int from pg_locks where pid = pg_backend_pid() and locktype = 'advisory') as held`,
    );
    return rows;
  };
  await client.query("select set_config('holdfast.installation', '', false)");
  const before = await state();
  await applySchema(client, { migrations: [first], installation: "somewhere", lockTimeout: seconds(3) });
  assert.deepEqual(await state(), before);
});

test("M1: the files have no gap, and none commits or begins a transaction of its own", async () => {
  for (const { name, sql } of await readMigrations(directory)) {
    const words = lex(sql).filter((token) => token.kind === "word");
    const control = words.filter((word) =>
      ["commit", "rollback", "savepoint"].includes(word.text.toLowerCase()),
    );
    assert.deepEqual(control, [], name);
  }
});

test("M4: the role recipe can run in several databases at once, and again, and changes nothing then", async (t) => {
  const databases = await Promise.all([
    emptyDatabase(t),
    emptyDatabase(t),
    emptyDatabase(t),
    emptyDatabase(t),
  ]);
  // Roles are the whole server's: names of its own make this the first run, which is the one that races.
  const prefix = `race_${randomBytes(4).toString("hex")}_`;
  const recipe = (await readRoles(directory)).replaceAll("holdfast_", prefix);
  const roles = (client: Client) =>
    client.query("select * from pg_roles where starts_with(rolname, $1) order by rolname", [prefix]);
  const clients = await Promise.all(databases.map(({ superuser }) => connect(t, superuser)));
  await Promise.all(clients.map((client) => applyRoles(client, recipe)));

  const [client] = clients;
  assert(client !== undefined);
  const before = await roles(client);
  assert.equal(before.rowCount, 8);
  await applyRoles(client, recipe);
  assert.deepEqual((await roles(client)).rows, before.rows);
});

test("M3: the role recipe needs the right to create roles", async (t) => {
  const { app } = await testDatabase(t);
  const client = await connect(t, app);
  const recipe = "create role holdfast_not_for_you;";
  await assert.rejects(applyRoles(client, recipe), (error) => isHoldfastError(error, "owner_required"));
});
