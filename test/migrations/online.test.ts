import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { isHoldfastError } from "../../src/core/errors.ts";
import { applySchema } from "../../src/core/schema/migrate.ts";
import { readMigrations } from "../../src/core/schema/migrations.ts";
import { onlineStates, readOnlineSteps, runOnlineSteps } from "../../src/core/schema/online.ts";
import { schemaStatus } from "../../src/core/schema/status.ts";
import { type TestDatabase, testDatabase, withClient } from "../support/database.ts";
import { until } from "../support/until.ts";

const migrations = await readMigrations(new URL("../../migrations", import.meta.url).pathname);
const version = migrations.length;
const build = `drop index concurrently if exists holdfast.jobs_by_name;
-- then
create index concurrently jobs_by_name on holdfast.jobs (tenant_id, name);
`;

/** Steps from files, as a release has them. */
async function steps(t: TestContext, files: Readonly<Record<string, string>>) {
  const folder = await mkdtemp(join(tmpdir(), "holdfast-online-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  await mkdir(join(folder, "online"));
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, "online", name), text);
  return readOnlineSteps(folder);
}

const run = (database: TestDatabase, list: Awaited<ReturnType<typeof steps>>) =>
  withClient(database.owner, (client) => runOnlineSteps(client, { steps: list, version }));
const ask = (database: TestDatabase, sql: string) =>
  withClient(database.superuser, async (client) => (await client.query(sql)).rows as unknown[]);
const states = (database: TestDatabase, list: Awaited<ReturnType<typeof steps>>) =>
  withClient(database.app, async (client) => {
    await client.query("set role holdfast_producer");
    return (await onlineStates(client, list)).map(({ state }) => state);
  });

/** Kill the session that builds an index, in the middle of it. */
async function cutShort(
  database: TestDatabase,
  build: () => Promise<unknown>,
  meanwhile: () => Promise<void>,
): Promise<void> {
  // The build has to wait for this transaction's snapshot to end.
  await withClient(database.superuser, async (reader) => {
    await reader.query("begin isolation level repeatable read; select from holdfast.jobs");
    const cut = assert.rejects(build());
    const waiting =
      "select pid from pg_stat_activity where datname = current_database() and query like 'create index%' and wait_event_type = 'Lock'";
    await until("the build waits", async () => (await ask(database, waiting)).length === 1);
    await meanwhile();
    await ask(database, `select pg_terminate_backend(pid) from (${waiting}) w`);
    await cut;
    await reader.query("rollback");
  });
}

test("M1: an online step runs outside a transaction, once, and every runtime role can see how far it is", async (t) => {
  const database = await testDatabase(t);
  const list = await steps(t, { "0012_jobs_by_name.sql": build });
  assert.deepEqual(await states(database, list), ["pending"]);
  assert.equal((await run(database, list)).length, 1);
  assert.deepEqual(await states(database, list), ["done"]);
  assert.deepEqual(await run(database, list), []);
  assert.deepEqual(await ask(database, "select tries from holdfast.schema_online_steps"), [{ tries: 1 }]);
  const status = await withClient(database.owner, (client) =>
    schemaStatus(client, migrations, { steps: list }),
  );
  assert.deepEqual(status.online, [{ name: "0012_jobs_by_name", state: "done", objects: null }]);
});

test("M1: an online step is told as running while a session is at it; killed, it leaves a half-built index, says so, and is taken up again", async (t) => {
  const database = await testDatabase(t);
  const list = await steps(t, { "0012_jobs_by_name.sql": build, "0012_later.sql": "select 1;" });
  await cutShort(
    database,
    () => run(database, list),
    async () => assert.deepEqual(await states(database, list), ["running", "pending"]),
  );
  await until("its session has ended", async () => (await states(database, list))[0] !== "running");
  assert.deepEqual(await states(database, list), ["interrupted", "pending"]);
  const valid =
    "select indisvalid as valid from pg_index where indexrelid = 'holdfast.jobs_by_name'::regclass";
  assert.deepEqual(await ask(database, valid), [{ valid: false }]);
  assert.equal((await run(database, list)).length, 2);
  assert.deepEqual(await ask(database, valid), [{ valid: true }]);
  assert.deepEqual(await ask(database, "select tries from holdfast.schema_online_steps order by name"), [
    { tries: 2 },
    { tries: 1 },
  ]);
  assert.deepEqual(await states(database, list), ["done", "done"]);
});

test("M1: whoever waits to apply holds no snapshot that a step would wait for", async (t) => {
  const database = await testDatabase(t);
  const list = await steps(t, { "0012_jobs_by_name.sql": build });
  await withClient(database.superuser, async (reader) => {
    await reader.query("begin isolation level repeatable read; select from holdfast.jobs");
    const first = run(database, list);
    const waiting =
      "select from pg_stat_activity where datname = current_database() and query like 'create index%' and wait_event_type = 'Lock'";
    await until("the build waits", async () => (await ask(database, waiting)).length === 1);
    const second = withClient(database.owner, (client) => applySchema(client, { migrations }));
    const trying =
      "select from pg_stat_activity where datname = current_database() and query like '%pg_try_advisory_lock%' and pid <> pg_backend_pid() and state = 'idle'";
    await until("another waits for its turn", async () => (await ask(database, trying)).length === 1);
    await reader.query("rollback");
    assert.equal((await first).length, 1);
    assert.deepEqual((await second).applied, []);
  });
});

test("M1: a step that fails says where, and one that was run with other bytes is drift", async (t) => {
  const database = await testDatabase(t);
  const broken = await steps(t, { "0012_broken.sql": "select 1\n-- then\nselect nonsense" });
  await assert.rejects(
    run(database, broken),
    (error) => isHoldfastError(error, "migration_failed") && /0012_broken, statement 2: /.test(error.detail),
  );
  await run(database, await steps(t, { "0012_one.sql": "select 1" }));
  await assert.rejects(run(database, await steps(t, { "0012_one.sql": "select 2" })), (error) =>
    isHoldfastError(error, "schema_drift"),
  );
});

test("M3: online steps need the owner", async (t) => {
  const database = await testDatabase(t);
  await assert.rejects(
    withClient(database.app, (client) => runOnlineSteps(client, { steps: [], version })),
    (error) => isHoldfastError(error, "owner_required"),
  );
});
