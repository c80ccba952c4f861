import assert from "node:assert/strict";
import { test } from "node:test";
import { testDatabase, withClient } from "../support/database.ts";

test("S1: each identity has a table with typed columns, and what is JSON in any of them is bounded", async (t) => {
  const { superuser } = await testDatabase(t);
  await withClient(superuser, async (client) => {
    const names = async (sql: string) =>
      (await client.query<{ name: string }>(sql)).rows.map(({ name }) => name);
    const relations = await names(
      "select relname as name from pg_class where relnamespace = 'holdfast'::regnamespace and relkind in ('r', 'p', 'v')",
    );
    for (const name of [
      "agents",
      "cloud_sessions",
      "activations",
      "sandbox_attempts",
      "bundle_revisions",
      "session_leases",
      "resource_changes",
      "publication_outbox",
      "schema_migrations",
    ]) {
      assert.ok(relations.includes(name), name);
    }
    const unbounded = await names(
      `select c.relname || '.' || a.attname as name from pg_class c
       join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
       where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
         and a.atttypid in ('json'::regtype, 'jsonb'::regtype) and not exists (
           select from pg_constraint k where k.conrelid = c.oid and k.contype = 'c' and a.attnum = any (k.conkey)
             and pg_get_constraintdef(k.oid) ~ ('pg_column_size\\(' || a.attname || '\\) <='))
       order by 1`,
    );
    assert.deepEqual(unbounded, []);
  });
});
