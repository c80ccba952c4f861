import assert from "node:assert/strict";
import { test } from "node:test";
import type { Client } from "pg";
import { isHoldfastError } from "../../src/core/errors.ts";
import { effectOf, readCatalogue } from "../../src/core/schema/catalogue.ts";
import { applySchema } from "../../src/core/schema/migrate.ts";
import { readMigrations } from "../../src/core/schema/migrations.ts";
import { schemaScript } from "../../src/core/schema/script.ts";
import { verifySchema } from "../../src/core/schema/verify.ts";
import { emptyDatabase, type TestDatabase, testDatabase, withClient } from "../support/database.ts";
import { populateSchema6 } from "./populate.ts";

const directory = new URL("../../migrations", import.meta.url).pathname;
const migrations = await readMigrations(directory);
const effects = await readCatalogue(directory);

const applyTo = (database: TestDatabase, version: number) =>
  withClient(database.owner, (client) =>
    applySchema(client, { migrations: migrations.slice(0, version), effects }),
  );
const asSuperuser = (database: TestDatabase, sql: string) =>
  withClient(database.superuser, (client) => client.query(sql));
const verify = (database: TestDatabase) =>
  withClient(database.superuser, (client) => verifySchema(client, migrations, effects));
const drift = (words: RegExp) => (error: unknown) =>
  isHoldfastError(error, "schema_drift") && words.test(error.detail);

test("M1: what the release says its migrations make is of their very bytes", () => {
  for (const migration of migrations) {
    assert.notEqual(effectOf(effects, migration), null, `${migration.name}: npm run generate`);
  }
});

test("M1: verify prints the same digest for a fresh store and for one that was upgraded with rows in it", async (t) => {
  const [fresh, upgraded] = [await testDatabase(t), await emptyDatabase(t)];
  await applyTo(upgraded, 6);
  await withClient(upgraded.superuser, (client) => populateSchema6(client, "acme"));
  for (let version = 7; version <= migrations.length; version += 1) await applyTo(upgraded, version);
  const [expected, found] = [await verify(fresh), await verify(upgraded)];
  assert.deepEqual(found, expected);
  assert.deepEqual([found.missing, found.changed, found.unexpected], [[], [], []]);
  assert.match(found.digest, /^[0-9a-f]{64}$/);
});

test("M1: verify names what is missing, what is another, and what is somebody else's", async (t) => {
  const database = await testDatabase(t);
  await asSuperuser(
    database,
    `drop index holdfast.tokens_hash; alter table holdfast.jobs no force row level security;
     create index mine on holdfast.jobs (name); grant select on holdfast.jobs to holdfast_worker`,
  );
  const { missing, changed, unexpected } = await verify(database);
  assert.deepEqual(
    [missing, changed, unexpected],
    [["index holdfast.tokens_hash"], ["table holdfast.jobs"], ["index holdfast.mine"]],
  );
});

test("M1: apply checks the store before a migration, and goes on beside what others added", async (t) => {
  const database = await emptyDatabase(t);
  await applyTo(database, 11);
  await asSuperuser(database, "create index mine on holdfast.jobs (name); drop index holdfast.tokens_hash");
  await assert.rejects(
    applyTo(database, 12),
    drift(/^before 0012_\w+: index holdfast\.tokens_hash is missing$/),
  );
  await asSuperuser(database, "create index tokens_hash on holdfast.tokens using hash (token_hash)");
  assert.equal((await applyTo(database, 12)).version, 12);
  await asSuperuser(database, "alter table holdfast.jobs no force row level security");
  await assert.rejects(applyTo(database, 12), drift(/^what was applied: table holdfast\.jobs is another$/));
});

test("M1: a migration that makes something else than it should is rolled back whole", async (t) => {
  const database = await emptyDatabase(t);
  await applyTo(database, 1);
  const wrong = effects.map((effect) =>
    effect.version === 2
      ? { ...effect, objects: { ...effect.objects, "table holdfast.tokens": "0" } }
      : effect,
  );
  await withClient(database.owner, async (client) => {
    await assert.rejects(
      applySchema(client, { migrations: migrations.slice(0, 3), effects: wrong }),
      drift(/^after 0002_principals, which was rolled back: table holdfast\.tokens is another$/),
    );
    const { rows } = await client.query("select to_regclass('holdfast.tokens') as made");
    assert.deepEqual(rows, [{ made: null }]);
  });
});

test("M3: the script checks bytes and catalogue as apply does, before and after", async (t) => {
  const database = await emptyDatabase(t);
  await applyTo(database, 11);
  const script = schemaScript(migrations, { from: 11, effects });
  assert.equal(schemaScript(migrations, { from: 11, effects }), script);
  const refused = (words: RegExp) =>
    withClient(database.superuser, async (client: Client) => {
      await assert.rejects(client.query(script), words);
      await client.query("rollback");
    });
  await asSuperuser(database, "alter index holdfast.tokens_hash rename to hidden");
  await refused(/other than migrations make them: index holdfast\.tokens_hash$/);
  await asSuperuser(database, "alter index holdfast.hidden rename to tokens_hash");
  await asSuperuser(
    database,
    "update holdfast.schema_migrations set checksum = repeat('a', 64) where version = 3",
  );
  await refused(/applied with other bytes/);
  await withClient(database.superuser, (client) =>
    client.query("update holdfast.schema_migrations set checksum = $1 where version = 3", [
      migrations[2]?.checksum,
    ]),
  );
  await asSuperuser(database, script);
  assert.deepEqual((await verify(database)).changed, []);
});
