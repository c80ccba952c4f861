import assert from "node:assert/strict";
import { test } from "node:test";
import { emptyDatabase, testDatabase } from "../../test/support/database.ts";
import { isHoldfastError } from "../core/errors.ts";
import { supportedSchema } from "../core/schema/version.ts";
import type { PostgresConnection } from "../dev/postgres/server.ts";
import { schemaCommand } from "./schema.ts";

function urlOf({ user, password, database, host, port }: PostgresConnection): string {
  const url = new URL(`postgresql://localhost:${String(port)}/${database}`);
  url.username = user;
  url.password = password;
  url.searchParams.set("host", host);
  return url.href;
}

/** Run one command as the command line would, and give what it printed. */
async function run(connection: PostgresConnection | undefined, ...words: string[]): Promise<string> {
  let printed = "";
  const command = schemaCommand({
    databaseUrl: connection === undefined ? undefined : urlOf(connection),
    installation: "test-store",
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
  assert.match(await run(owner, "apply"), /^applied 0001_foundation\n[\s\S]*\nschema version \d+\n$/);
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
  await assert.rejects(run(owner, "status", "-o", "yaml"), (error) =>
    isHoldfastError(error, "invalid_configuration"),
  );
  await assert.rejects(run({ ...owner, port: 1 }, "status"), (error) => {
    assert(isHoldfastError(error, "unavailable"));
    assert(!error.detail.includes(owner.password));
    return true;
  });
});
