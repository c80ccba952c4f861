import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { isHoldfastError } from "../../src/core/errors.ts";
import { brandId, type IncarnationId } from "../../src/core/ids.ts";
import { endIncarnation } from "../../src/core/incarnation.store.ts";
import { readCatalogue } from "../../src/core/schema/catalogue.ts";
import { applySchema } from "../../src/core/schema/migrate.ts";
import { type Migration, readMigrations } from "../../src/core/schema/migrations.ts";
import { verifySchema } from "../../src/core/schema/verify.ts";
import { emptyDatabase, testDatabase, withClient } from "../support/database.ts";
import { shellJob, testStack } from "../support/stack.ts";
import { populateAt } from "./populate.ts";
import { columnsOf, digests } from "./row-digests.ts";

const directory = new URL("../../migrations", import.meta.url).pathname;
const migrations = await readMigrations(directory);
const effects = await readCatalogue(directory);
const newest = migrations.length;

for (let version = 1; version < newest; version += 1) {
  test(`M6: a store of schema ${version} with rows in every table is upgraded to ${newest}, and none of them is rewritten`, async (t) => {
    const database = await emptyDatabase(t);
    const apply = (to: number) =>
      withClient(database.owner, (client) =>
        applySchema(client, { migrations: migrations.slice(0, to), effects }),
      );
    await apply(version);
    await withClient(database.superuser, async (client) => {
      for (const tenant of ["acme", "other"]) await populateAt(client, tenant, version);
      const tables = await columnsOf(client);
      const before = await digests(client, tables);
      for (const { table, rows } of before) {
        if (!["incarnations", "work_runners"].includes(table))
          assert.notEqual(rows, 0, `${table} has no row to compare`);
      }
      assert.equal((await apply(newest)).version, newest);
      assert.deepEqual(await digests(client, tables), before);
      const fresh = await testDatabase(t);
      const expected = await withClient(fresh.superuser, (other) => verifySchema(other, migrations, effects));
      assert.deepEqual(await verifySchema(client, migrations, effects), expected);
    });
  });
}

/** What a next release could bring: nothing that this one would miss. */
const sql = `alter table holdfast.jobs add column colour text;
create table holdfast.colours (tenant_id text not null, colour text not null, primary key (tenant_id, colour));`;
const next: Migration = {
  version: newest + 1,
  name: "colours",
  sql,
  checksum: createHash("sha256").update(sql).digest("hex"),
};

test("M2: this release goes on working on a newer store while its floors allow it, and stops where they don't", async (t) => {
  const stack = await testStack(t);
  const old = await stack.foundation("gateway");
  await withClient(stack.database.owner, (client) =>
    applySchema(client, { migrations: [...migrations, next] }),
  );
  // What runs goes on, and what starts starts.
  await stack.submit(old, shellJob("before", [{ run: "true" }]));
  const later = await stack.foundation("gateway");
  await stack.submit(later, shellJob("after", [{ run: "true" }]));
  assert.deepEqual(await stack.rows("select name, colour from holdfast.jobs order by name"), [
    { name: "after", colour: null },
    { name: "before", colour: null },
  ]);
  const raise = `update holdfast.store set writer_floor = ${newest + 1}`;
  await assert.rejects(stack.rows(raise), { code: "HF018" });
  for (const { id } of await stack.rows<{ id: string }>(
    "select incarnation_id as id from holdfast.incarnations",
  ))
    await endIncarnation(old.db, brandId<IncarnationId>(id));
  await stack.rows(raise);
  await assert.rejects(stack.foundation("gateway"), (error) => isHoldfastError(error, "schema_incompatible"));
});
