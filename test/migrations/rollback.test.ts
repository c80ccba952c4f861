import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { Client } from "pg";
import { readCatalogue } from "../../src/core/schema/catalogue.ts";
import { applySchema } from "../../src/core/schema/migrate.ts";
import { readMigrations } from "../../src/core/schema/migrations.ts";
import { verifySchema } from "../../src/core/schema/verify.ts";
import { defineWork } from "../../src/work/define.ts";
import { submitAll } from "../../src/work/open.ts";
import { legacy } from "../../src/work/policy.ts";
import { registerVersion } from "../../src/work/version.store.ts";
import { emptyDatabase, type TestDatabase, testDatabase, withClient } from "../support/database.ts";
import { until } from "../support/until.ts";
import { workStand } from "../support/work.ts";
import { populateStore } from "./populate.ts";
import { columnsOf, digests } from "./row-digests.ts";

const directory = new URL("../../migrations", import.meta.url).pathname;
const migrations = await readMigrations(directory);
const effects = await readCatalogue(directory);
const noop = defineWork<unknown, null>({
  name: "noop",
  version: "1",
  safety: "idempotent",
  policy: legacy(),
  run: () => null,
});

interface Proof {
  /** What it stops: as whom, what, and by which refusal. */
  readonly stops: readonly (readonly [role: string, statement: string, refusal: string])[];
  /** What goes on beside it. */
  readonly goesOn: readonly (readonly [role: string, statement: string])[];
}

const admits = (kind: string) => ["gateway", `select holdfast.assert_admits('${kind}')`] as const;
const drained = (kind: string) => [...admits(kind), "HF017"] as const;
const denied = "42501";
const claim = ["dispatcher", "select nextval('holdfast.lease_epochs')"] as const;
const renew = ["dispatcher", "update holdfast.leases set wake_at = wake_at"] as const;
const authenticate = ["gateway", "select * from holdfast.authenticate(sha256('x'), 1)"] as const;
const command = [
  "gateway",
  `insert into holdfast.commands (tenant_id, command_id, principal_id, idempotency_key, operation, target, fingerprint)
   select 'acme', gen_random_uuid(), principal_id, 'key-9', 'submit', 'jobs', sha256('x') from holdfast.principals`,
] as const;
const submit = [
  "gateway",
  "insert into holdfast.jobs (tenant_id, job_id, name, spec_digest) select 'acme', gen_random_uuid(), 'x', spec_digest from holdfast.job_specs",
] as const;
const makeAgent = [
  "gateway",
  "insert into holdfast.agents (tenant_id, agent_id, name, runtime) values ('acme', gen_random_uuid(), 'more', 'process')",
] as const;
const prioritise = ["gateway", "update holdfast.jobs set priority = 0 where state = 'queued'"] as const;
const plan = ["controller", "update holdfast.sandbox_attempts set stop_reason = 'x' where false"] as const;
const read = ["gateway", "select * from holdfast.commands"] as const;

const proofs: Readonly<Record<string, Proof>> = {
  "0001_foundation": {
    stops: ["jobs", "sessions", "activations", "work"].map(drained),
    goesOn: [claim, renew, authenticate, prioritise],
  },
  "0002_principals": { stops: [[...authenticate, denied]], goesOn: [claim, renew, admits("jobs")] },
  "0003_leases": { stops: [[...claim, denied]], goesOn: [renew, authenticate, submit] },
  "0004_commands_and_changes": { stops: [[...command, denied]], goesOn: [read, claim, renew] },
  "0005_jobs": {
    stops: [drained("jobs"), [...submit, denied]],
    goesOn: [prioritise, claim, renew, admits("sessions"), admits("work")],
  },
  "0006_sandboxes": {
    stops: [drained("jobs"), drained("activations")],
    goesOn: [plan, claim, renew, admits("sessions"), admits("work")],
  },
  "0007_execution_attempts": {
    stops: [drained("jobs")],
    goesOn: [prioritise, claim, renew, admits("activations")],
  },
  "0008_agents_and_sessions": {
    stops: [drained("sessions"), [...makeAgent, denied]],
    goesOn: [claim, renew, admits("activations"), admits("jobs")],
  },
  "0009_activations": { stops: [drained("activations")], goesOn: [claim, renew, admits("sessions")] },
  "0010_bundles_and_checkpoints": {
    stops: [drained("sessions"), drained("activations")],
    goesOn: [claim, renew, admits("jobs")],
  },
};

/** In the role and for the tenant `acme`, keeping nothing. Gives the SQLSTATE of a refusal, or null. */
async function tried(client: Client, role: string, statement: string): Promise<string | null> {
  await client.query(`begin; set local role holdfast_${role}; set local holdfast.tenant = 'acme'`);
  try {
    await client.query(statement);
    return null;
  } catch (error) {
    assert.ok(error instanceof Error && "code" in error, String(error));
    return String(error.code);
  } finally {
    await client.query("rollback");
  }
}

test("M8: every migration has its rollback", async () => {
  const files = (await readdir(join(directory, "rollback"))).map((file) => file.replace(/\.sql$/, ""));
  const names = migrations.map(({ version, name }) => `${String(version).padStart(4, "0")}_${name}`);
  assert.deepEqual(files.toSorted(), names);
});

for (const [name, { stops, goesOn }] of Object.entries(proofs)) {
  test(`M8: the rollback of ${name} stops what it enabled and lets the rest go on, and its undo leaves no trace`, async (t) => {
    const database = await testDatabase(t);
    const text = await readFile(join(directory, "rollback", `${name}.sql`), "utf8");
    await withClient(database.superuser, async (client) => {
      await populateStore(client, "acme");
      await client.query("delete from holdfast.drains");
      const tables = await columnsOf(client);
      const told = new Map([...tables].filter(([table]) => !["drains", "operator_actions"].includes(table)));
      const facts = async () => [
        await digests(client, told),
        (await client.query("select * from holdfast.store")).rows,
        (await client.query("select * from holdfast.schema_migrations order by version")).rows,
      ];
      const before = await facts();
      for (const [role, statement] of stops)
        assert.equal(await tried(client, role, statement), null, statement);
      // Twice: running it again changes nothing.
      for (const _ of [1, 2]) await withClient(database.owner, (owner) => owner.query(text));
      assert.deepEqual(await facts(), before);
      for (const [role, statement, refusal] of stops) {
        assert.equal(await tried(client, role, statement), refusal, statement);
      }
      for (const [role, statement] of goesOn)
        assert.equal(await tried(client, role, statement), null, statement);

      const undo = [...text.matchAll(/^-- Undo: (.+)$/gm)].map(([, statement = ""]) => statement);
      assert.ok(undo.length > 0);
      await withClient(database.owner, (owner) => owner.query(undo.join("\n")));
      for (const [role, statement] of stops)
        assert.equal(await tried(client, role, statement), null, statement);
      assert.deepEqual(await facts(), before);
      const { missing, changed, unexpected } = await verifySchema(client, migrations, effects);
      assert.deepEqual([missing, changed, unexpected], [[], [], []]);
    });
  });
}

test("M8: the rollbacks of 0014 and 0013 bring the functions and policies of the schema before back, and the migrations bring their own", async (t) => {
  const { database, work, ask, worker } = await workStand(t);
  const drain = async () => {
    const all = Array.from({ length: 20 }, (_, n) => ({ input: n }));
    await registerVersion(work.db, noop);
    await submitAll(work, noop, all);
    const running = await worker({ works: [noop] });
    await until(
      "all of it is finished",
      async () => (await ask("select from holdfast.leases_work")).length === 0,
    );
    await running.stop();
  };
  const made = async ({ superuser }: Pick<TestDatabase, "superuser">) =>
    withClient(superuser, async (client) => [
      (
        await client.query(
          "select proname, prosrc, proconfig from pg_proc where proname ~ '^((submit|claim|turn|taken)_work|append_work_change)$' order by 1",
        )
      ).rows,
      (
        await client.query(
          "select tablename, policyname, qual, with_check from pg_policies where qual ~ 'current_tenant' order by 1, 2",
        )
      ).rows,
    ]);
  const asOwner = (text: string) =>
    withClient(database.owner, (owner) =>
      owner.query(`begin; set local role holdfast_owner; ${text} commit`),
    );
  const undos: { readonly again: string; readonly now: unknown }[] = [];
  for (const [name, version] of [
    ["0014_work_quick_turns", 14],
    ["0013_work_bounded_lines", 13],
  ] as const) {
    const older = await emptyDatabase(t);
    const before = migrations.filter((one) => one.version < version);
    await withClient(older.owner, (owner) => applySchema(owner, { migrations: before, effects }));
    const now = await made(database);
    const rollback = await readFile(join(directory, "rollback", `${name}.sql`), "utf8");
    for (const _ of [1, 2]) await withClient(database.owner, (owner) => owner.query(rollback));
    assert.deepEqual(await made(database), await made(older));
    assert.notDeepEqual(await made(database), now);
    await drain();
    const { sql } = migrations.find((one) => one.version === version) ?? assert.fail(name);
    // What 0013 creates stays, as its rollback says.
    undos.unshift({ again: version === 13 ? sql.slice(sql.indexOf("alter policy")) : sql, now });
  }
  for (const { again, now } of undos) {
    await asOwner(again);
    assert.deepEqual(await made(database), now);
    await drain();
  }
  await withClient(database.superuser, async (client) => {
    const { missing, changed, unexpected } = await verifySchema(client, migrations, effects);
    assert.deepEqual([missing, changed, unexpected], [[], [], []]);
  });
});
