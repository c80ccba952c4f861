import assert from "node:assert/strict";
import { after, test } from "node:test";
import { isHoldfastError } from "../../src/core/errors.ts";
import type { CatalogueDifference } from "../../src/core/schema/catalogue.ts";
import { applySchema } from "../../src/core/schema/migrate.ts";
import { runOnlineSteps } from "../../src/core/schema/online.ts";
import { schemaPlan } from "../../src/core/schema/plan.ts";
import { schemaScript } from "../../src/core/schema/script.ts";
import { schemaStatus } from "../../src/core/schema/status.ts";
import { microseconds } from "../../src/core/time.ts";
import { emptyDatabase, type TestDatabase, testDatabase, withClient } from "../support/database.ts";
import { ownRelease } from "../support/own-release.ts";
import { populateSchema6 } from "./populate.ts";

const build = `drop index concurrently if exists holdfast.jobs_by_name;
-- then
create index concurrently jobs_by_name on holdfast.jobs (tenant_id, name);
`;
/** One that takes something away, in whose place it puts another. */
const replace = `drop index concurrently if exists holdfast.tokens_by_hash;
-- then
create index concurrently tokens_by_hash on holdfast.tokens (token_hash);
-- then
drop index concurrently if exists holdfast.tokens_hash;
`;
const both = { "online/0012_jobs_by_name.sql": build, "online/0012_tokens_by_hash.sql": replace };
const release = await ownRelease({ after }, both);
const newest = release.migrations.length;

const asSuperuser = ({ superuser }: TestDatabase, sql: string) =>
  withClient(superuser, (client) => client.query(sql));
const none: CatalogueDifference = { missing: [], changed: [], unexpected: [] };
const differences = ({ missing, changed, unexpected }: CatalogueDifference): CatalogueDifference => ({
  missing,
  changed,
  unexpected,
});

test("M1: verify says how far an online step is, and what one that is done has made belongs to the store", async (t) => {
  const database = await testDatabase(t);
  const before = await release.verify(database);
  assert.deepEqual(differences(before), none);
  assert.deepEqual(before.online, [
    { name: "0012_jobs_by_name", state: "pending", objects: ["index holdfast.jobs_by_name"] },
    {
      name: "0012_tokens_by_hash",
      state: "pending",
      objects: ["index holdfast.tokens_by_hash", "index holdfast.tokens_hash"],
    },
  ]);
  await release.applyOnline(database);
  const done = await release.verify(database);
  assert.deepEqual(differences(done), none);
  assert.deepEqual(
    done.online.map(({ state }) => state),
    ["done", "done"],
  );
  assert.notEqual(done.digest, before.digest);

  await asSuperuser(
    database,
    `drop index holdfast.jobs_by_name; create index tokens_hash on holdfast.tokens using hash (token_hash);
     drop index holdfast.tokens_by_hash; create index tokens_by_hash on holdfast.tokens (token_hash, tenant_id)`,
  );
  assert.deepEqual(differences(await release.verify(database)), {
    missing: ["index holdfast.jobs_by_name"],
    changed: ["index holdfast.tokens_by_hash"],
    unexpected: ["index holdfast.tokens_hash"],
  });
});

test("M1: a half-built index of an online step is told as such, and as nobody else's", async (t) => {
  const [database, fresh] = [await testDatabase(t), await testDatabase(t)];
  await withClient(database.superuser, async (reader) => {
    // The build waits for this transaction's snapshot to end, which is longer than it may.
    await reader.query("begin isolation level repeatable read; select from holdfast.jobs");
    const { steps, migrations } = release;
    const impatient = { steps, version: migrations.length, lockTimeout: microseconds(50_000n) };
    await assert.rejects(
      withClient(database.owner, (client) => runOnlineSteps(client, impatient)),
      (error) => isHoldfastError(error, "schema_busy"),
    );
    await reader.query("rollback");
  });
  const { rows } = await asSuperuser(
    database,
    "select indisvalid as valid from pg_index where indexrelid = 'holdfast.jobs_by_name'::regclass",
  );
  assert.deepEqual(rows, [{ valid: false }]);
  const found = await release.verify(database);
  assert.deepEqual(differences(found), none);
  assert.deepEqual(
    found.online.map(({ state }) => state),
    ["interrupted", "pending"],
  );
  // Applying goes on beside it, and so do the steps.
  assert.deepEqual((await release.apply(database)).applied, []);
  await release.applyOnline(database);
  await release.applyOnline(fresh);
  assert.deepEqual(await release.verify(database), await release.verify(fresh));
});

test("M1 M6: a populated store that ran its steps between two upgrades, and a fresh one that ran them last, have one digest", async (t) => {
  const later = await ownRelease(t, {
    ...both,
    [`${String(newest + 1).padStart(4, "0")}_later.sql`]:
      "create table holdfast.later (id int4 primary key);",
  });
  const [upgraded, fresh] = [await emptyDatabase(t), await emptyDatabase(t)];
  const { migrations, effects } = release;
  await withClient(upgraded.owner, (client) =>
    applySchema(client, { migrations: migrations.slice(0, 6), effects }),
  );
  await withClient(upgraded.superuser, (client) => populateSchema6(client, "acme"));
  await release.apply(upgraded);
  await release.applyOnline(upgraded);
  // Before, after and at the end of the later one the store is compared with what it should be.
  assert.equal((await later.apply(upgraded)).version, newest + 1);
  assert.deepEqual(await later.applyOnline(upgraded), []);

  await later.apply(fresh);
  await later.applyOnline(fresh);
  const found = await later.verify(upgraded);
  assert.deepEqual(differences(found), none);
  assert.deepEqual(found, await later.verify(fresh));
  await asSuperuser(upgraded, "drop index holdfast.jobs_by_name");
  await assert.rejects(later.apply(upgraded), (error) => {
    assert(isHoldfastError(error, "schema_drift"));
    assert.equal(error.detail, "what was applied: index holdfast.jobs_by_name is missing");
    return true;
  });
});

test("M1: an online step that makes something else than the release says is not done", async (t) => {
  const database = await testDatabase(t);
  const steps = release.steps.map((step) => ({
    ...step,
    statements: ["create index concurrently if not exists jobs_by_name on holdfast.jobs (name)"],
  }));
  await withClient(database.owner, (client) =>
    assert.rejects(
      runOnlineSteps(client, { steps, version: release.migrations.length }),
      (error) =>
        isHoldfastError(error, "migration_failed") &&
        error.detail === "after the online step 0012_jobs_by_name: index holdfast.jobs_by_name is another",
    ),
  );
  assert.equal((await release.verify(database)).online[0]?.state, "interrupted");
});

test("M3: plan and status say which objects a step has to do with, and the script leaves them out of its migrations' checks", async (t) => {
  const { migrations, effects, steps } = release;
  const database = await testDatabase(t);
  const status = await withClient(database.owner, (client) => schemaStatus(client, migrations, { steps }));
  assert.deepEqual(
    schemaPlan(status, effects).online.map(({ objects }) => objects),
    [["index holdfast.jobs_by_name"], ["index holdfast.tokens_by_hash", "index holdfast.tokens_hash"]],
  );
  const named = (script: string) =>
    script.split("-- Online steps:")[0]?.includes("'index holdfast.tokens_hash'");
  assert.equal(named(schemaScript(migrations, { from: 11, effects })), true);
  assert.equal(named(schemaScript(migrations, { from: 11, effects, steps })), false);
});

/** As psql sends a file: statement by statement, each by itself. */
async function send(database: TestDatabase, script: string): Promise<void> {
  const statements = script.replaceAll(/^--.*$/gm, "").match(/(?:\$(\w+)\$[^]*?\$\1\$|[^;$])+;/g);
  assert.ok(statements !== null);
  await withClient(database.owner, async (client) => {
    for (const statement of statements) await client.query(statement);
  });
}

test("M3: the script prints the online steps after the migrations, in order, and they make what apply --online makes", async (t) => {
  const { migrations, effects, steps } = release;
  const [scripted, applied] = [await testDatabase(t), await testDatabase(t)];
  const script = schemaScript(migrations, { from: newest, effects, steps });
  assert.match(
    script,
    /^-- Online steps: what PostgreSQL can't run in a transaction\. Each statement .+ by itself/m,
  );
  const places = [
    ...steps.map(({ name }) => `-- Online, outside a transaction: ${name} `),
    "advisory_unlock(7146290580)",
  ];
  const found = places.map((text) => script.indexOf(text));
  assert.ok(!found.includes(-1), script);
  assert.deepEqual(
    found,
    found.toSorted((a, b) => a - b),
  );
  assert.ok(found.every((place) => place > script.lastIndexOf("\ncommit;")));
  // Once alone, and then to the end after it was cut short.
  await send(scripted, schemaScript(migrations, { from: newest, effects, steps: steps.slice(0, 1) }));
  assert.deepEqual(
    (await release.verify(scripted)).online.map(({ state }) => state),
    ["done", "pending"],
  );
  await assert.rejects(send(scripted, script), /the online step 0012_jobs_by_name is done: leave it out/);
  await send(scripted, schemaScript(migrations, { from: newest, effects, steps: steps.slice(1) }));
  await release.applyOnline(applied);
  assert.deepEqual(await release.verify(scripted), await release.verify(applied));
  assert.deepEqual(await release.applyOnline(scripted), []);
});

test("M3: a step of the script that makes something else is not recorded as done", async (t) => {
  const { migrations, effects, steps } = release;
  const database = await testDatabase(t);
  const other = steps.map((step) => ({
    ...step,
    statements: ["create index concurrently if not exists jobs_by_name on holdfast.jobs (name)"],
  }));
  await assert.rejects(
    send(database, schemaScript(migrations, { from: newest, effects, steps: other })),
    /missing, or other than migrations make them: index holdfast\.jobs_by_name$/,
  );
  assert.equal((await release.verify(database)).online[0]?.state, "interrupted");
});
