import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "yaml";
import { emptyDatabase, testDatabase, withClient } from "../../test/support/database.ts";
import { ownRelease } from "../../test/support/own-release.ts";
import { isHoldfastError } from "../core/errors.ts";
import { applySchema } from "../core/schema/migrate.ts";
import { readMigrations, releaseMigrations } from "../core/schema/migrations.ts";
import { supportedSchema } from "../core/schema/version.ts";
import type { PostgresConnection } from "../dev/postgres/server.ts";
import { failureOf } from "./failures.ts";
import { schemaCommand } from "./schema.ts";

/** The number of the last migration, as it is written. */
const newest = String(supportedSchema.maximum).padStart(4, "0");

/** Run one command as the command line would, and give what it printed. */
function run(connection: PostgresConnection | undefined, ...words: string[]): Promise<string> {
  return runAs(undefined, connection, ...words);
}

/** The same with an installation set. */
async function runAs(
  installation: string | undefined,
  connection: PostgresConnection | undefined,
  ...words: string[]
): Promise<string> {
  let printed = "";
  const command = schemaCommand({
    database: connection,
    installation,
    write: (text) => {
      printed += text;
    },
  });
  await command.parseAsync(words, { from: "user" });
  return printed;
}

test("M3: plan, apply, and apply again, each said in words", async (t) => {
  const { owner } = await emptyDatabase(t);
  assert.match(await run(owner, "plan"), /^0001_foundation\n0002_/);
  assert.match(
    await runAs("test-store", owner, "apply"),
    /^applied 0001_foundation\n[\s\S]*\nschema version \d+\n$/,
  );
  assert.match(await run(owner, "apply"), /^schema version \d+\n$/);
  assert.equal(await run(owner, "plan"), "nothing to apply\n");

  const status: unknown = JSON.parse(await run(owner, "status", "-o", "json"));
  assert(typeof status === "object" && status !== null && "store" in status && "write" in status);
  assert.equal(status.write, null);
  assert.deepEqual(
    { ...(status.store as object), incarnationId: "" },
    {
      version: supportedSchema.maximum,
      readerFloor: supportedSchema.minimum,
      writerFloor: supportedSchema.minimum,
      installationId: "test-store",
      incarnationId: "",
      deploymentEpoch: "1",
    },
  );
});

test("M2: status --check fails with the reason where this release may not write", async (t) => {
  const { app } = await emptyDatabase(t);
  await assert.rejects(run(app, "status", "--check"), (error) => isHoldfastError(error, "schema_missing"));
  assert.match(await run(app, "status"), /^schema +none\n/);
});

test("M3: apply is refused to a runtime's login", async (t) => {
  const { app } = await testDatabase(t);
  await assert.rejects(run(app, "apply"), (error) => isHoldfastError(error, "owner_required"));
});

test("M3: the script and the role recipe are printed without a database", async () => {
  assert.match(await run(undefined, "script"), /^-- Holdfast schema, version 0 to \d+\.\n/);
  assert.match(await run(undefined, "script", "--from", "3"), /^-- Holdfast schema, version 3 to \d+\.\n/);
  assert.match(await run(undefined, "roles", "--print"), /create role/);
});

test("a missing URL, a bad flag and an unreachable database have their own errors", async (t) => {
  const { owner } = await emptyDatabase(t);
  await assert.rejects(run(undefined, "status"), (error) => isHoldfastError(error, "invalid_configuration"));
  await assert.rejects(
    run(owner, "status", "--database-url", "mysql://x"),
    /^UsageError: --database-url must be postgres:/,
  );
  await assert.rejects(run({ ...owner, port: 1 }, "status"), (error) => {
    assert(isHoldfastError(error, "unavailable"));
    assert(!error.detail.includes(owner.password));
    return true;
  });
});

test("M5: status under a runtime's own login shows floors, epoch, live processes by version and online steps", async (t) => {
  const { app, superuser } = await testDatabase(t);
  await withClient(superuser, (client) =>
    client.query(
      `insert into holdfast.incarnations (incarnation_id, process, release, schema_minimum, schema_maximum, deployment_epoch, seen_at, ended_at)
       select gen_random_uuid(), process, '0.1.0', 12, 12, 1, seen, ended
       from (values ('gateway', now(), null), ('gateway', now(), null), ('controller', now(), null),
         ('controller', now() - interval '3 minutes', null), ('controller', now(), now())) as p (process, seen, ended)`,
    ),
  );
  const text = await run(app, "status");
  assert.match(text, new RegExp(`^schema +${newest}_[a-z_]+$`, "m"));
  assert.match(text, /^epoch +1\nfloors +read 12, write 12$/m);
  assert.match(
    text,
    /^processes +1 controller 0\.1\.0, understands 12 to 12, epoch 1\n +2 gateway 0\.1\.0, understands 12 to 12, epoch 1$/m,
  );
  assert.match(text, /^online steps +none$/m);
});

test("M3: the plan of an upgrade says what it locks, what to drain, and who has to be stopped first", async (t) => {
  const { owner, superuser } = await emptyDatabase(t);
  const migrations = await readMigrations(await releaseMigrations());
  await withClient(owner, (client) => applySchema(client, { migrations: migrations.slice(0, 11) }));
  await withClient(superuser, (client) =>
    client.query(
      `insert into holdfast.incarnations (incarnation_id, process, release, schema_minimum, schema_maximum, deployment_epoch)
       values (gen_random_uuid(), 'controller', '0.0.9', 10, 11, 1)`,
    ),
  );
  const text = await run(owner, "plan");
  assert.match(text, /^0012_work_execution_policy\n {2}locks {4}holdfast\.leases ACCESS EXCLUSIVE\n/);
  assert.match(text, /^ {2}floors {3}read 12, write 12: stop every process below them first$/m);
  assert.match(text, /^ {2}drain {4}work first: `holdfast drain`$/m);
  assert.match(text, /^ {2}waits {4}for the end of controller 0\.0\.9$/m);
});

test("M5: a store of another installation is refused by name before anything is shown or changed", async (t) => {
  const { app, owner } = await testDatabase(t);
  for (const [login, ...words] of [
    [app, "status"],
    [app, "plan"],
    [app, "verify"],
    [owner, "apply"],
    [owner, "apply", "--online"],
    [app, "rotate-epoch", "--from", "1", "--reason", "x"],
  ] as const) {
    await assert.rejects(runAs("elsewhere", login, ...words), (error) => {
      assert(isHoldfastError(error, "installation_mismatch"), String(error));
      assert.match(error.detail, /^the store belongs to [a-z0-9-]+, this process to elsewhere$/);
      return true;
    });
  }
  const { store } = JSON.parse(await run(app, "status", "-o", "json")) as {
    store: { installationId: string };
  };
  assert.match(await runAs(store.installationId, app, "status"), new RegExp(`^schema +${newest}_`));
});

test("M5: what is seen of a schema is printed as JSON and as YAML, and both say the same", async (t) => {
  const { app, owner, superuser } = await testDatabase(t);
  for (const [login, command] of [
    [app, "status"],
    [app, "plan"],
    [app, "verify"],
    [owner, "apply"],
    [superuser, "roles"],
  ] as const) {
    const [json, yaml] = [await run(login, command, "-o", "json"), await run(login, command, "-o", "yaml")];
    assert.doesNotMatch(yaml, /^\{/);
    assert.deepEqual(parse(yaml), JSON.parse(json), command);
  }
});

test("M1: verify says what to do about what is missing, changed, somebody else's or half done", async (t) => {
  const { app, superuser } = await testDatabase(t);
  const nextOf = async () => {
    const error: unknown = await run(app, "verify").catch((thrown: unknown) => thrown);
    return [failureOf(error).code, failureOf(error).detail, failureOf(error).next];
  };
  await withClient(superuser, (client) => client.query("create table holdfast.extra (id int4)"));
  assert.deepEqual(await nextOf(), [
    "schema_drift",
    "1 object is none of this release's",
    "Drop what is unexpected, or move it out of the schema holdfast; nothing here needs it.",
  ]);
  await withClient(superuser, (client) =>
    client.query("drop table holdfast.extra; drop index holdfast.tokens_hash"),
  );
  const [, detail, next] = await nextOf();
  assert.equal(detail, "1 object is missing or other than in a fresh install");
  assert.match(next ?? "", /^Put back what is missing or changed as `.*holdfast schema script` makes it\.$/);
});

test("what a login lacks is said with what to do about it, and not to try again", async (t) => {
  const { app, owner } = await emptyDatabase(t);
  const codeAndDetail = async (work: Promise<unknown>) => {
    const error: unknown = await work.catch((thrown: unknown) => thrown);
    assert(isHoldfastError(error), String(error));
    assert.equal(error.detail.includes(app.password), false);
    return `${error.code}: ${error.detail}`;
  };
  assert.match(
    await codeAndDetail(run({ ...owner, user: "nobody-here" }, "status")),
    /^invalid_configuration: the database refuses this login: .*"nobody-here"\. Correct user and password/,
  );
  assert.match(
    await codeAndDetail(run({ ...owner, database: "nothing-here" }, "status")),
    /^invalid_configuration: database "nothing-here" does not exist\. Correct its name/,
  );
  assert.match(await codeAndDetail(run(undefined, "apply")), /^invalid_configuration: no database is named/);
});

test("M1: verify prints one digest, and fails with the reason where the store is another", async (t) => {
  const { app, superuser } = await testDatabase(t);
  assert.match(
    await run(app, "verify"),
    new RegExp(`^schema version ${supportedSchema.maximum}\\ndigest +[0-9a-f]{64}\\nobjects +\\d+\\n$`),
  );
  await withClient(superuser, (client) => client.query("create index mine on holdfast.jobs (name)"));
  await assert.rejects(run(app, "verify"), (error) => isHoldfastError(error, "schema_drift"));
});

test("M1: online steps are reported by status, plan and verify, and run by apply --online, once", async (t) => {
  const step = `drop index concurrently if exists holdfast.jobs_by_name;
-- then
create index concurrently jobs_by_name on holdfast.jobs (tenant_id, name);
`;
  const { directory } = await ownRelease(t, { "online/0012_jobs_by_name.sql": step });
  const { owner, superuser } = await testDatabase(t);
  const here = async (...words: string[]) => {
    let printed = "";
    const write = (text: string) => void (printed += text);
    const command = schemaCommand({ database: owner, installation: undefined, write, directory });
    await command.parseAsync(words, { from: "user" });
    return printed;
  };
  assert.match(await here("status"), /^online steps +0012_jobs_by_name \(pending\)$/m);
  assert.match(
    await here("plan"),
    /^online 0012_jobs_by_name \(pending\): `holdfast schema apply --online`\n {2}makes {4}index holdfast\.jobs_by_name$/m,
  );
  assert.match(
    await here("verify"),
    /^online step {4}0012_jobs_by_name \(pending\), index holdfast\.jobs_by_name: `holdfast schema apply --online`$/m,
  );
  await withClient(superuser, (client) =>
    client.query(
      "insert into holdfast.schema_online_steps (name, checksum) values ('0012_jobs_by_name', repeat('a', 64))",
    ),
  );
  await assert.rejects(here("verify"), /half done: 0012_jobs_by_name$/);
  assert.match(await here("status"), /^online steps +0012_jobs_by_name \(interrupted\)$/m);
  assert.equal(await here("apply", "--online"), "ran 0012_jobs_by_name\n");
  assert.equal(await here("apply", "--online"), "nothing to run\n");
  assert.match(await here("status"), /^online steps +none$/m);
  assert.doesNotMatch(await here("verify"), /online step/);
});
