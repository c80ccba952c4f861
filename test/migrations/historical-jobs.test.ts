import assert from "node:assert/strict";
import { test } from "node:test";
import { applySchema } from "../../src/core/schema/migrate.ts";
import { readMigrations } from "../../src/core/schema/migrations.ts";
import { emptyDatabase, withClient } from "../support/database.ts";
import { populateSchema6 } from "./populate.ts";
import { columnsOf, digests } from "./row-digests.ts";

const directory = new URL("../../migrations", import.meta.url).pathname;

test("M6: historical jobs and all other rows are byte-for-byte the same after 0007", async (t) => {
  const { superuser, owner } = await emptyDatabase(t);
  const migrations = await readMigrations(directory);
  await withClient(owner, (client) => applySchema(client, { migrations: migrations.slice(0, 6) }));
  await withClient(superuser, async (client) => {
    await populateSchema6(client, "acme");
    await populateSchema6(client, "other");
    const tables = await columnsOf(client);
    const before = await digests(client, tables);
    for (const { table, rows } of before) {
      if (table !== "incarnations") assert.notEqual(rows, 0, `${table} has no historical row to compare`);
    }

    await withClient(owner, (session) => applySchema(session, { migrations: migrations.slice(0, 7) }));
    assert.deepEqual(await digests(client, tables), before);
    const enrolled = await client.query("select from holdfast.jobs where enrolled_at is not null");
    assert.equal(enrolled.rowCount, 0, "a historical job stays the direct claimant's");
  });
});

test("E13: the direct claimant can't take an enrolled job, however old its code is", async (t) => {
  const { superuser, owner } = await emptyDatabase(t);
  const migrations = await readMigrations(directory);
  await withClient(owner, (client) => applySchema(client, { migrations: migrations.slice(0, 7) }));
  await withClient(superuser, async (client) => {
    await populateSchema6(client, "acme");
    const claim = `update holdfast.jobs set state = 'running', claimed_by = 'host-9', claimed_until = now() + interval '1 h'
      where tenant_id = 'acme' and state = 'queued' returning job_id`;
    await client.query("update holdfast.jobs set enrolled_at = now() where state = 'queued'");
    await assert.rejects(client.query(claim), { constraint: "jobs_enrolled_are_not_claimed" });
    // An old row that nobody enrolled is claimed as ever.
    await client.query(
      `insert into holdfast.jobs (tenant_id, job_id, name, spec_digest)
       select tenant_id, gen_random_uuid(), name, spec_digest from holdfast.jobs where state = 'queued'`,
    );
    const { rowCount } = await client.query(claim.replace("state = 'queued'", "$& and enrolled_at is null"));
    assert.equal(rowCount, 1);
  });
});
