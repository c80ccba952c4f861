import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Compile } from "typebox/compile";
import { isUuid } from "../../src/core/ids.ts";
import type { Database } from "../../src/core/postgres/transition.ts";
import { jobRoutes } from "../../src/executions/http.ts";
import { doctorRoute } from "../../src/http/doctor.ts";
import { examine } from "../../src/main/doctor.ts";
import { DoctorReport } from "../../src/wire/doctor.ts";
import { exitCodes } from "../../src/wire/exit-codes.ts";
import { noBlobs, openBench } from "../support/gateway.ts";
import { tenantA, tenantB } from "../support/kernel.ts";
import { runCommand } from "../support/run-command.ts";

let db: Database | null = null;
const bench = await openBench(
  { after },
  {
    routes: [
      jobRoutes({ blobs: noBlobs, queueMax: 10 }),
      doctorRoute((tenant) => (db === null ? Promise.reject(new Error("too early")) : examine(db, tenant))),
    ],
  },
);
db = bench.kernel.db;
const job = await bench.submit();
assert(isUuid(job.id));

const { user, password, host, port, database } = bench.kernel.database.app;
const databaseUrl = `postgres://${user}:${encodeURIComponent(password)}@/${database}?host=${encodeURIComponent(host)}`;
assert(port > 0);
const onDatabase = (...words: string[]) =>
  runCommand(["doctor", ...words], { env: { HOLDFAST_DATABASE_URL: databaseUrl } });
const onServer = (token: string, ...words: string[]) =>
  runCommand(["doctor", ...words], { env: { HOLDFAST_URL: bench.url(""), HOLDFAST_TOKEN: token } });

const reportOf = (text: string): DoctorReport => {
  const report: unknown = JSON.parse(text);
  assert(Compile(DoctorReport).Check(report));
  return report;
};

test("doctor: of a store with nothing wrong it says so, and ends with 0", async () => {
  const text = await onDatabase();
  assert.deepEqual([text.code, text.stderr], [exitCodes.ok, ""]);
  assert.match(text.stdout, /^store +\S+, incarnation/);
  assert.match(text.stdout, /^checks +\d+ over 2 tenants$/m);
  assert.match(text.stdout, /^Nothing is wrong\.$/m);
  const json = await onDatabase("-o", "json");
  const report = reportOf(json.stdout);
  assert.deepEqual([json.code, report.healthy, report.findings], [exitCodes.ok, true, []]);
  // The most dead rows first, then by name: of a new store only the beginning of the list is certain.
  assert(report.tables.some(({ name }) => name === "activations"));
});

test("doctor: a database of another installation, and one that is not there, are refused by name", async () => {
  const doctor = (env: Readonly<Record<string, string>>) => runCommand(["doctor"], { env });
  const other = await doctor({ HOLDFAST_DATABASE_URL: databaseUrl, HOLDFAST_INSTALLATION: "elsewhere" });
  assert.equal(other.code, exitCodes.schema_unusable);
  assert.match(other.stderr, /^error: the store belongs to \S+, this process to elsewhere\n/);
  const absent = await doctor({ HOLDFAST_DATABASE_URL: databaseUrl.replace(database, "absent") });
  assert.equal(absent.code, exitCodes.usage);
  assert.match(
    absent.stderr,
    /^error: database "absent" does not exist\. Correct its name in the URL, or create it/,
  );
});

test("doctor: what is wrong is named, with where and what to do, and the exit code is its own", async () => {
  await bench.kernel.ask("begin");
  await bench.kernel.ask("create table public.kept as select * from holdfast.leases");
  await bench.kernel.ask("delete from holdfast.leases");
  await bench.kernel.ask("commit");
  try {
    const text = await onDatabase();
    assert.equal(text.code, exitCodes.findings);
    assert.match(text.stdout, /^broken leaseHasItsResource \(G2\)$/m);
    assert(text.stdout.includes(`${tenantA}: admission/${job.id}`));
    assert(text.stdout.includes("it is queued, and no lease makes it due"));

    const json = await onDatabase("-o", "json", "--tenant", tenantA);
    assert.deepEqual(
      reportOf(json.stdout).findings.map(({ check, severity, tenant }) => [check, severity, tenant]),
      [["leaseHasItsResource", "broken", tenantA]],
    );
    const other = await onDatabase("--tenant", tenantB);
    assert.equal(other.code, exitCodes.ok, "nothing of that tenant is broken");
    const nobody = await onDatabase("--tenant", "nosuch");
    assert.deepEqual([nobody.code, nobody.stdout], [exitCodes.not_found, ""]);
    assert.match(nobody.stderr, /there is no tenant nosuch/);
  } finally {
    await bench.kernel.ask("insert into holdfast.leases select * from public.kept");
  }
});

test("doctor: what nobody takes is told with the process that would take it, by kind", async () => {
  const { ask } = bench.kernel;
  const next = async () => {
    const { findings } = reportOf((await onDatabase("-o", "json")).stdout);
    const neglected = findings.filter(({ check }) => check === "neglectedLeases");
    return new Map(neglected.map(({ resource, next }) => [resource, next]));
  };
  const [registered] = await ask<{ version_number: number }>(
    `insert into holdfast.work_versions (name, version, digest, queue, safety, attempts_max, retry_initial_microseconds,
       retry_longest_microseconds, elapsed_max_microseconds, lease_max_microseconds)
     values ('charge', '3', sha256('charge'), 'billing', 'idempotent', 5, 0, 0, 1, 1000000) returning version_number`,
  );
  const number = registered?.version_number ?? 0;
  await ask(
    `insert into holdfast.leases (tenant_id, kind, resource_id, queue, due_at, wake_at)
     select $1, line.kind, gen_random_uuid(), line.queue, at, at
     from (values ('work', $2 || '.billing'), ('execution', 'pods'), ('publication', 'default')) line (kind, queue),
       lateral (select clock_timestamp() - interval '10 minutes' as at) clock`,
    [tenantA, String(number)],
  );
  try {
    const before = await next();
    assert.deepEqual([...before.keys()].toSorted(), [
      "execution/pods",
      "publication/default",
      "work/charge/3/billing",
    ]);
    assert.match(
      before.get("work/charge/3/billing") ?? "",
      /^Start a worker that runs charge 3 .+ queue billing/,
    );
    assert.match(before.get("execution/pods") ?? "", /controller --runtime pods/);
    await ask(
      `with alive as (
         insert into holdfast.incarnations (incarnation_id, process, release, schema_minimum, schema_maximum, deployment_epoch, runtimes)
         select gen_random_uuid(), 'program', 'test', 1, 1000, 1, '{pods}' returning incarnation_id)
       insert into holdfast.work_runners (incarnation_id, version_number) select incarnation_id, $1 from alive`,
      [number],
    );
    const after = await next();
    assert.match(after.get("work/charge/3/billing") ?? "", /^1 process runs the version: look into its log/);
    assert.match(after.get("execution/pods") ?? "", /^A controller with the runtime pods is alive/);
    assert.match(after.get("publication/default") ?? "", /^A controller is alive/);
  } finally {
    await ask("delete from holdfast.leases where wake_at < clock_timestamp() - interval '9 minutes'");
    await ask("update holdfast.incarnations set ended_at = clock_timestamp() where process = 'program'");
  }
});

test("G1: over HTTP it is for operators: what is everything of a tenant is not the installation", async () => {
  const everything = await onServer(bench.a.token);
  assert.equal(everything.code, exitCodes.denied);
  assert.match(everything.stderr, /operator/);
  const operator = await bench.caller(tenantB, ["operator"]);
  const { code, stdout } = await onServer(operator.token, "-o", "json");
  assert.deepEqual([code, reportOf(stdout).tenants], [exitCodes.ok, 2]);
  assert.equal((await bench.call(operator, "GET", "/v1/jobs")).status, 403);
  const bad = await bench.call(operator, "GET", "/v1/doctor?tenant=NOBODY");
  assert.equal(bad.status, 400);
});

test("doctor: a flag that names nothing is a mistake, and no password is shown", async () => {
  const tenant = await onDatabase("--tenant", "No Body");
  assert.equal(tenant.code, exitCodes.usage);
  const url = await runCommand(["doctor", "--database-url", "postgres://u:geheim@h"]);
  assert.equal(url.code, exitCodes.usage);
  assert(!url.stderr.includes("geheim"));
});
