import assert from "node:assert/strict";
import { test } from "node:test";
import { isHoldfastError } from "../../src/core/errors.ts";
import { checkCompatibility, judgeCompatibility } from "../../src/core/schema/compatibility.ts";
import { readMigrations } from "../../src/core/schema/migrations.ts";
import { schemaStatus } from "../../src/core/schema/status.ts";
import { supportedSchema } from "../../src/core/schema/version.ts";
import { exitCodeOf, exitCodes } from "../../src/wire/exit-codes.ts";
import { emptyDatabase, testDatabase, withClient } from "../support/database.ts";

const directory = new URL("../../migrations", import.meta.url).pathname;
const runtimeRoles = ["gateway", "controller", "worker", "producer", "dispatcher", "operator", "retention"];

const facts = {
  version: 9,
  readerFloor: 7,
  writerFloor: 8,
  installationId: "here",
  incarnationId: "00000000-0000-7000-8000-000000000000",
  deploymentEpoch: 1n,
};

test("M2: each purpose is held to its own floor, and a schema that is too old is refused", () => {
  const refused = (purpose: "read" | "write", minimum: number, maximum: number) =>
    judgeCompatibility(facts, { purpose, supported: { minimum, maximum } })?.code;
  assert.equal(refused("read", 7, 6), "schema_incompatible");
  assert.equal(refused("read", 7, 7), undefined);
  assert.equal(refused("write", 7, 7), "schema_incompatible");
  assert.equal(refused("write", 7, 8), undefined);
  assert.equal(refused("read", 10, 10), "schema_incompatible");
  assert.equal(refused("write", 9, 12), undefined);
});

test("M2: a store of another installation is refused before anything else", () => {
  const refusal = judgeCompatibility(facts, { purpose: "read", installation: "there" });
  assert.equal(refusal?.code, "installation_mismatch");
});

test("M2: an incompatible binary has an exit code of its own", () => {
  assert.equal(exitCodeOf("schema_incompatible"), exitCodes.schema_incompatible);
  const numbers = Object.values(exitCodes);
  assert.equal(new Set(numbers).size, numbers.length);
});

test("M2: without a schema every check says so, and touches nothing", async (t) => {
  const { app } = await emptyDatabase(t);
  await withClient(app, async (client) => {
    await assert.rejects(checkCompatibility(client, { purpose: "read" }), (error) =>
      isHoldfastError(error, "schema_missing"),
    );
    const status = await schemaStatus(client, await readMigrations(directory));
    assert.equal(status.store, null);
    assert.equal(status.write?.code, "schema_missing");
  });
});

test("M5: every runtime role can check compatibility and read the schema's status", async (t) => {
  const { app } = await testDatabase(t);
  const migrations = await readMigrations(directory);
  await withClient(app, async (client) => {
    await assert.rejects(checkCompatibility(client, { purpose: "read" }), (error) =>
      isHoldfastError(error, "schema_missing"),
    );
    for (const role of runtimeRoles) {
      await client.query(`set role holdfast_${role}`);
      const store = await checkCompatibility(client, { purpose: "write" });
      assert.equal(store.version, migrations.length);
      const status = await schemaStatus(client, migrations);
      assert.deepEqual([status.pending, status.problem, status.read, status.write], [[], null, null, null]);
    }
  });
});

test("M2: a raised floor refuses this release at its next check, and floors never go down", async (t) => {
  const { superuser } = await testDatabase(t);
  const above = supportedSchema.maximum + 1;
  await withClient(superuser, async (client) => {
    await client.query("update holdfast.store set writer_floor = $1", [above]);
    await checkCompatibility(client, { purpose: "read" });
    await assert.rejects(checkCompatibility(client, { purpose: "write" }), (error) =>
      isHoldfastError(error, "schema_incompatible"),
    );
    for (const floor of ["reader_floor", "writer_floor"]) {
      await assert.rejects(client.query(`update holdfast.store set ${floor} = ${floor} - 1`), {
        code: "HF002",
      });
    }
  });
});

test("M2: this release supports exactly the migrations that it ships", async () => {
  const migrations = await readMigrations(directory);
  assert.equal(supportedSchema.maximum, migrations.length);
});
