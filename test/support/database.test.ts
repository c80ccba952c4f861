import assert from "node:assert/strict";
import { test } from "node:test";
import { emptyDatabase, testDatabase, withClient } from "./database.ts";

test("a test database has the schema, and another one does not see its rows", async (t) => {
  const [one, other] = await Promise.all([testDatabase(t), testDatabase(t)]);
  await withClient(one.superuser, (client) => client.query("create table holdfast.only_here ()"));
  for (const [database, expected] of [
    [one, 1],
    [other, 0],
  ] as const) {
    const found = await withClient(database.superuser, (client) =>
      client.query("select from pg_tables where schemaname = 'holdfast' and tablename = 'only_here'"),
    );
    assert.equal(found.rowCount, expected);
  }
});

test("M4: the runtime login inherits nothing and takes one role a connection", async (t) => {
  const { app } = await testDatabase(t);
  await withClient(app, async (client) => {
    const before = await client.query<{ usage: boolean }>(
      "select has_schema_privilege('holdfast', 'usage') as usage",
    );
    assert.deepEqual(before.rows, [{ usage: false }]);
    await client.query("set role holdfast_gateway");
    await assert.rejects(client.query("create table holdfast.mine ()"), { code: "42501" });
  });
});

test("the owner's connection acts as holdfast_owner, in an empty database too", async (t) => {
  const { owner } = await emptyDatabase(t);
  await withClient(owner, async (client) => {
    const who = await client.query<{ current_user: string }>("select current_user");
    assert.deepEqual(who.rows, [{ current_user: "holdfast_owner" }]);
    await client.query("create schema holdfast");
  });
});
