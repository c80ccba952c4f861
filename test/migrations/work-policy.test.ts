import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isHoldfastError } from "../../src/core/errors.ts";
import { applySchema } from "../../src/core/schema/migrate.ts";
import { readMigrations, readRoles } from "../../src/core/schema/migrations.ts";
import { schemaScript } from "../../src/core/schema/script.ts";
import {
  emptyDatabase,
  type Scope,
  type TestDatabase,
  testDatabase,
  withClient,
} from "../support/database.ts";
import {
  populateSchema6,
  populateSchema7,
  populateSchema10,
  populateSchema11,
  populateSchema12,
} from "./populate.ts";
import { columnsOf, digests } from "./row-digests.ts";

const directory = new URL("../../migrations", import.meta.url).pathname;

/** A store at schema 11 with rows of two tenants in every table. */
async function schema11(scope: Scope): Promise<TestDatabase> {
  const database = await emptyDatabase(scope);
  const migrations = await readMigrations(directory);
  await withClient(database.owner, (client) => applySchema(client, { migrations: migrations.slice(0, 11) }));
  await withClient(database.superuser, async (client) => {
    for (const tenant of ["acme", "other"]) {
      await populateSchema7(client, tenant, await populateSchema6(client, tenant));
      await populateSchema10(client, tenant);
      await populateSchema11(client, tenant);
    }
  });
  return database;
}

async function upgrade(database: TestDatabase): Promise<void> {
  const migrations = await readMigrations(directory);
  await withClient(database.owner, (client) => applySchema(client, { migrations: migrations.slice(0, 12) }));
}

test("M6: every row of a populated schema-11 store is byte-for-byte the same after 0012", async (t) => {
  const database = await schema11(t);
  await withClient(database.superuser, async (client) => {
    const tables = await columnsOf(client);
    assert.ok(tables.has("work_items") && tables.has("leases_work"));
    const before = await digests(client, tables);
    await upgrade(database);
    assert.deepEqual(await digests(client, tables), before);
    const opted = await client.query(
      "select from holdfast.work_items where execution_policy_schema is not null",
    );
    assert.equal(opted.rowCount, 0, "legacy Work has no timing fact");
  });
});

test("M2: 0012 raises both floors to 12, and refuses while an older process is alive", async (t) => {
  const database = await schema11(t);
  await withClient(database.superuser, async (client) => {
    const floors = async () =>
      (await client.query("select reader_floor, writer_floor from holdfast.store")).rows[0] as unknown;
    await client.query(
      `insert into holdfast.incarnations (incarnation_id, process, release, schema_minimum, schema_maximum, deployment_epoch)
       values (gen_random_uuid(), 'controller', '0.0.9', 10, 11, 1)`,
    );
    await assert.rejects(upgrade(database), (error) => {
      assert.ok(isHoldfastError(error, "migration_failed"));
      assert.match(error.message, /older processes are alive: controller 0\.0\.9/);
      return true;
    });
    assert.deepEqual(await floors(), { reader_floor: 1, writer_floor: 1 });
    await client.query("update holdfast.incarnations set ended_at = now()");
    await upgrade(database);
    assert.deepEqual(await floors(), { reader_floor: 12, writer_floor: 12 });
  });
});

test("M2: 0012 refuses while an item is held, and while one is permitted, however old its lease", async (t) => {
  const database = await schema11(t);
  await withClient(database.superuser, async (client) => {
    const held = "update holdfast.leases_work set holder = gen_random_uuid(), epoch = 1";
    await client.query(
      `${held}, work_state = 'leased', wake_at = now() + interval '1 minute' where work_state = 'pending'`,
    );
    await assert.rejects(upgrade(database), /2 items of work are held/);
    await client.query(
      "update holdfast.leases_work set work_state = 'permitted', attempt = 1, wake_at = now() - interval '1 day' where work_state = 'leased'",
    );
    await assert.rejects(upgrade(database), /2 items of work are held/);
    await client.query(
      "update holdfast.leases_work set work_state = 'retry_wait', holder = null, wake_at = due_at where work_state = 'permitted'",
    );
    await upgrade(database);
    const forced = await client.query(
      "select from pg_class where relname = 'leases_work' and relforcerowsecurity",
    );
    assert.equal(forced.rowCount, 1);
  });
});

const plan =
  "attempt_plan_version = 'p', attempt_plan_offsets = '{0,1000000}', maximum_circuit_microseconds = 2000000";

/** What a constraint is told by, and an assignment to a planned item that it refuses. */
const refused: readonly (readonly [constraint: string, assignment: string])[] = [
  ["work_items_policy_schema", "execution_policy_schema = 'work-execution-v2'"],
  ["work_items_legacy_has_no_timing", "execution_policy_schema = null"],
  ["work_items_plan_is_whole", "attempt_plan_version = null"],
  ["work_items_plan_is_whole", "maximum_circuit_microseconds = null"],
  [
    "work_items_plan_or_deadline",
    "attempt_plan_version = null, attempt_plan_offsets = null, maximum_circuit_microseconds = null, execution_not_after = null",
  ],
  ["work_items_plan_version", "attempt_plan_version = ''"],
  ["work_items_plan_version", "attempt_plan_version = repeat('x', 101)"],
  ["work_items_plan_offsets", "attempt_plan_offsets = '{1,1000000}'"],
  ["work_items_plan_offsets", "attempt_plan_offsets = '{0,0}'"],
  ["work_items_plan_offsets", "attempt_plan_offsets = '{0,null}'"],
  ["work_items_plan_attempts", "attempt_plan_offsets = '{}', attempts_max = 1"],
  ["work_items_plan_circuit", "maximum_circuit_microseconds = 1000000"],
  ["work_items_plan_attempts", "attempts_max = 3"],
  ["work_items_plan_elapsed", "elapsed_max_microseconds = 1999999"],
  [
    "work_items_deadline_reached",
    "execution_deadline_reached_at = execution_not_after - interval '1 microsecond'",
  ],
  ["work_items_deadline_was_one", "execution_deadline_reached_at = now(), execution_not_after = null"],
  ["work_items_admission_closed", "execution_admission_closed_at = now()"],
  [
    "work_items_closed_reason",
    "execution_admission_closed_at = now(), execution_admission_closed_reason = 'tired'",
  ],
];

test("W3: the columns of the policy hold what they must, by constraints with names", async (t) => {
  const { superuser } = await testDatabase(t);
  await withClient(superuser, async (client) => {
    await populateSchema11(client, "acme");
    const work = await populateSchema12(client, "acme");
    // Behind the triggers, which refuse any change of most of them.
    await client.query("set session_replication_role = replica");
    for (const [constraint, assignment] of refused) {
      const sql = `update holdfast.work_items set ${assignment} where work_id = '${work}'`;
      await assert.rejects(client.query(sql), { constraint }, assignment);
    }
    const many = (length: number) =>
      `update holdfast.work_items set attempt_plan_offsets = (select array_agg(n) from generate_series(0, ${length - 1}) n),
         attempts_max = 256 where work_id = '${work}'`;
    await client.query(many(256));
    await assert.rejects(client.query(many(257)), /work_items_plan/);
    await client.query(`update holdfast.work_items set ${plan}, attempts_max = 2 where work_id = '${work}'`);
    await assert.rejects(
      client.query(
        `update holdfast.work_items set ${plan}, attempts_max = 5 where execution_policy_schema is null`,
      ),
      /work_items_/,
    );
  });
});

/** The same of a registered version. */
const refusedVersions: readonly (readonly [constraint: string, assignment: string])[] = [
  ["work_versions_policy_schema", "execution_policy_schema = 'work-execution-v2'"],
  ["work_versions_legacy_has_no_plan", "execution_policy_schema = null"],
  ["work_versions_plan_is_whole", "attempt_plan_version = null"],
  ["work_versions_plan_is_whole", "maximum_circuit_microseconds = null"],
  ["work_versions_plan_version", "attempt_plan_version = ''"],
  ["work_versions_plan_version", "attempt_plan_version = repeat('x', 101)"],
  ["work_versions_plan_offsets", "attempt_plan_offsets = '{1,1000000}'"],
  ["work_versions_plan_offsets", "attempt_plan_offsets = '{0,0}'"],
  ["work_versions_plan_offsets", "attempt_plan_offsets = '{{0,1000000}}'"],
  ["work_versions_plan_offsets", "attempt_plan_offsets = '[0:1]={0,1000000}'"],
  ["work_versions_plan_circuit", "maximum_circuit_microseconds = 1000000"],
  ["work_versions_plan_attempts", "attempts_max = 3"],
  ["work_versions_plan_elapsed", "elapsed_max_microseconds = 1999999"],
  ["work_versions_elapsed", "elapsed_max_microseconds = 3155760000000001"],
  ["work_versions_initial", "retry_initial_microseconds = -1"],
  ["work_versions_longest", "retry_initial_microseconds = 2, retry_longest_microseconds = 1"],
  ["work_versions_lease", "lease_max_microseconds = 999999"],
  ["work_versions_safety", "safety = 'hopeful'"],
];

test("W3: a version that is registered keeps to the same, by constraints with names", async (t) => {
  const { superuser } = await testDatabase(t);
  await withClient(superuser, async (client) => {
    await populateSchema12(client, "acme");
    await client.query("set session_replication_role = replica");
    for (const [constraint, assignment] of refusedVersions) {
      const sql = `update holdfast.work_versions set ${assignment} where attempt_plan_version is not null`;
      await assert.rejects(client.query(sql), { constraint }, assignment);
    }
    await client.query("set session_replication_role = origin");
    for (const assignment of [
      "attempt_plan_offsets = '{0,2}'",
      "attempt_plan_version = 'q'",
      "maximum_circuit_microseconds = 3000000",
      "attempts_max = 3",
      "safety = 'manual_resolution'",
      "digest = sha256('z')",
    ]) {
      await assert.rejects(client.query(`update holdfast.work_versions set ${assignment}`), {
        code: "HF002",
      });
    }
  });
});

test("W3: an accepted deadline, its plan and its first observations never change", async (t) => {
  const { superuser } = await testDatabase(t);
  await withClient(superuser, async (client) => {
    await populateSchema11(client, "acme");
    const work = await populateSchema12(client, "acme");
    const set = (assignment: string) =>
      client.query(`update holdfast.work_items set ${assignment} where work_id = '${work}'`);
    await set("execution_admission_closed_at = now(), execution_admission_closed_reason = 'slots_exhausted'");
    await set("execution_deadline_reached_at = now()");
    for (const assignment of [
      "execution_not_after = execution_not_after + interval '1 second'",
      "execution_not_after = null",
      "attempt_plan_offsets = '{0,2}'",
      "input = '1'",
      "attempts_max = 1",
      "accepted_at = now()",
      "execution_deadline_reached_at = now() + interval '1 second'",
      "execution_admission_closed_reason = 'deadline_elapsed'",
      "execution_admission_closed_at = null",
    ]) {
      await assert.rejects(set(assignment), { code: "HF002" }, assignment);
    }
  });
});

const rollback = (name: string) => readFileSync(join(directory, "rollback", `${name}.sql`), "utf8");

for (const [name, open] of [
  ["0012_work_execution_policy", ["legacy"]],
  ["0011_work", []],
] as const) {
  test(`M8: the rollback of ${name} stops what it enabled, and drops no fact, floor or history`, async (t) => {
    const database = await testDatabase(t);
    await withClient(database.superuser, async (client) => {
      await populateSchema11(client, "acme");
      await populateSchema12(client, "acme");
      const tables = await columnsOf(client);
      const facts = async () => [
        await digests(client, new Map([...tables].filter(([table]) => table !== "work_versions"))),
        (await client.query("select * from holdfast.store")).rows,
        (await client.query("select * from holdfast.schema_migrations order by version")).rows,
      ];
      const before = await facts();
      // Twice: running it again changes nothing.
      for (const _ of [1, 2]) await withClient(database.owner, (owner) => owner.query(rollback(name)));
      assert.deepEqual(await facts(), before);
      const { rows } = await client.query<{ name: string }>(
        "select name from holdfast.work_versions where retired_at is null",
      );
      assert.deepEqual(
        rows.map((row) => row.name),
        [...open],
      );
      const register = `insert into holdfast.work_versions (name, version, digest, queue, safety, attempts_max, retry_initial_microseconds,
          retry_longest_microseconds, elapsed_max_microseconds, lease_max_microseconds, execution_policy_schema)
        values ('new', '1', sha256('x'), 'default', 'idempotent', 1, 0, 0, 1, 1000000, 'work-execution-v1')`;
      await assert.rejects(client.query(register), { code: "23514" });
    });
  });
}

test("W8: the clock is volatile and runs with its caller's rights, and no migration or script has another one", async (t) => {
  const { superuser } = await testDatabase(t);
  await withClient(superuser, async (client) => {
    const { rows } = await client.query(
      "select provolatile as volatile, prosecdef as definer from pg_proc where oid = 'holdfast.work_execution_now()'::regprocedure",
    );
    assert.deepEqual(rows, [{ volatile: "v", definer: false }]);
  });
  const texts = (await readMigrations(directory)).map(({ sql }) => sql).join("\n");
  assert.equal(texts.match(/function holdfast\.work_execution_now\(\) returns/g)?.length, 1);
  const roles = await readRoles(directory);
  const script = schemaScript(await readMigrations(directory));
  for (const text of [texts, script, roles, ...["0011_work", "0012_work_execution_policy"].map(rollback)])
    assert.doesNotMatch(text, /controlled|test_clock/i);
});
