import assert from "node:assert/strict";
import { test } from "node:test";
import { applySchema } from "../../src/core/schema/migrate.ts";
import { readMigrations } from "../../src/core/schema/migrations.ts";
import { schemaScript } from "../../src/core/schema/script.ts";
import { emptyDatabase, testDatabase, withClient } from "../support/database.ts";
import { schemaLines, schemaShape } from "./schema-digest.ts";

const directory = new URL("../../migrations", import.meta.url).pathname;

test("M3: the script has the same bytes each time, and every migration's own text", async () => {
  const migrations = await readMigrations(directory);
  const script = schemaScript(migrations);
  assert.equal(schemaScript(await readMigrations(directory)), script);
  for (const { sql, checksum } of migrations) {
    assert(script.includes(sql.trimEnd()) && script.includes(checksum));
  }
});

test("M3: the script makes the same schema and history as apply", async (t) => {
  const [applied, scripted] = [await testDatabase(t), await emptyDatabase(t)];
  const migrations = await readMigrations(directory);
  await withClient(scripted.superuser, async (client) => {
    await client.query(schemaScript(migrations));
    const expected = await withClient(applied.superuser, schemaShape);
    assert.deepEqual(await schemaShape(client), expected);
  });
  await withClient(scripted.owner, async (client) => {
    assert.deepEqual((await applySchema(client, { migrations })).applied, []);
  });
});

test("M3: a script from a version goes on from there, and refuses any other store", async (t) => {
  const { owner, superuser } = await emptyDatabase(t);
  const migrations = await readMigrations(directory);
  await withClient(owner, (client) => applySchema(client, { migrations: migrations.slice(0, 3) }));
  await withClient(superuser, async (client) => {
    await assert.rejects(client.query(schemaScript(migrations, { from: 4 })), {
      message: "the store is not at version 4",
    });
    await client.query("rollback");
    await client.query(schemaScript(migrations, { from: 3 }));

    const before = await schemaLines(client);
    await assert.rejects(client.query(schemaScript(migrations)), {
      message: "the store is not at version 0",
    });
    await client.query("rollback");
    assert.deepEqual(await schemaLines(client), before);
  });
});

test("M3: the script needs the migration's owner", async (t) => {
  const { app } = await emptyDatabase(t);
  const script = schemaScript(await readMigrations(directory));
  await withClient(app, async (client) => {
    await assert.rejects(client.query(script), { code: "42501" });
  });
});
