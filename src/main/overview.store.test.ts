import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Client, escapeLiteral } from "pg";
import { type Kernel, openKernel, tenantA, tenantB } from "../../test/support/kernel.ts";
import { brandId, type TenantId } from "../core/ids.ts";
import { leaseKinds } from "../core/lease.ts";
import { overviewLimits } from "../wire/overview-limits.ts";
import * as sql from "./overview.sql.ts";
import { listLeases, readOverview, readSystem } from "./overview.store.ts";

/** So much Work waits of each of two tenants; of everything else, more than a glance may look at. */
const manyWork = 50_000;
const many = 10_500;
const most = overviewLimits.countMax;
/** A question and its arguments as PostgreSQL writes them. */
type Question = readonly [{ readonly name: string; readonly text: string }, readonly string[]];
const kinds = `{${leaseKinds.join(",")}}`;
const ofTenant: readonly Question[] = [
  [sql.readOverview, [`${most}`]],
  [sql.readRecentJobs, ["2000-01-01", `${most}`]],
  [sql.readOwnPools, []],
  [sql.readOpenActivations, [`${most}`]],
  [sql.countOwnLeases, [kinds, `${most}`]],
  [sql.listLeases, [kinds, `${most}`, "500"]],
  [sql.listLeasesOfResource, [kinds, "00000002-0000-7000-8000-000000000000"]],
];
const ofAll: readonly Question[] = [
  [sql.countHeldLeases, [`{${leaseKinds.filter((kind) => kind !== "work").join(",")}}`, `${most}`]],
];

/** Ids grow with time, as those that are made do. Those of a series begin with its digit. */
const idOf = (series: number) =>
  `('${series}' || lpad(to_hex(n), 7, '0') || '-0000-7000-8000-000000000000')::uuid`;
const id = idOf(0);

/** Rows without the checks and triggers that a real life would go through. */
async function fill({ ask }: Kernel): Promise<void> {
  await ask("set session_replication_role = replica");
  const into = (table: string, columns: string, values: string, rows = many, tenant = "'tenant-a'") =>
    ask(
      `insert into holdfast.${table} (tenant_id, ${columns}) select ${tenant}, ${values} from generate_series(1, ${rows}) n`,
    );
  const lease = `${id}, 'q' || n % 3, now() - n * interval '1 s', now() - n * interval '1 s'`;
  const columns = "kind, resource_id, queue, due_at, wake_at";
  for (const kind of leaseKinds) {
    if (kind !== "work") await into("leases", columns, `'${kind}', ${lease}`);
  }
  await into(
    "leases",
    `${columns}, work_state, attempt`,
    `'work', ${lease}, 'pending', 0`,
    2 * manyWork,
    "case n % 2 when 0 then 'tenant-a' else 'tenant-b' end",
  );
  const then = "now() + n * interval '1 ms'";
  for (const [series, state] of ["queued", "failed"].entries()) {
    const at = state === "queued" ? "null" : then;
    await into(
      "jobs",
      "job_id, name, spec_digest, state, created_at, queued_at, finished_at",
      `${idOf(series)}, 'job', repeat('a', 64), '${state}', ${then}, ${then}, ${at}`,
    );
  }
  for (const [series, state] of ["pending", "dead", "delivered"].entries()) {
    const at = state === "pending" ? "null" : then;
    await into(
      "publication_outbox",
      `publication_id, source_kind, source_id, session_id, ordinal, destination, payload, created_at, state, settled_at`,
      `${idOf(series)}, 'activation', ${idOf(series)}, ${id}, 1, 'mail', '{}', ${then}, '${state}', ${at}`,
    );
  }
  await into(
    "activations",
    "session_id, activation_id, activation_uid, ordinal, content, content_digest, admitted_at",
    `${id}, ${id}, ${id}, 1, '{}', repeat('a', 64), now()`,
  );
  await into(
    "sandbox_attempts",
    `sandbox_id, owner_kind, owner_id, step, ordinal, name, runtime, spec, spec_digest, deadline, state, stopped_at,
     outcome, stop_proof`,
    `${id}, 'execution', ${id}, 'run', 1, 's' || n, 'process', '{}', repeat('a', 64), now(), 'removed', now(),
     'exited', 'seen'`,
  );
  await ask("set session_replication_role = origin");
  await ask("analyze");
}

interface Plan {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Index Name"?: string;
  readonly "Actual Rows": number;
  readonly "Actual Loops": number;
  readonly "Rows Removed by Filter"?: number;
  readonly "Rows Removed by Index Recheck"?: number;
  readonly Plans?: readonly Plan[];
}

/** Each walk of a table in a plan that was run, and how many rows it read, kept or not. */
function walks(plan: Plan): { readonly what: string; readonly rows: number }[] {
  const own = plan["Index Name"] ?? plan["Relation Name"];
  const passed = (plan["Rows Removed by Filter"] ?? 0) + (plan["Rows Removed by Index Recheck"] ?? 0);
  const rows = (plan["Actual Rows"] + passed) * plan["Actual Loops"];
  const below = (plan.Plans ?? []).flatMap(walks);
  return own === undefined ? below : [{ what: `${plan["Node Type"]} of ${own}`, rows }, ...below];
}

const kernel = await openKernel({ after });
await fill(kernel);

test("W12: no question of a glance reads more rows than its bound, with 50,000 items of Work waiting", async () => {
  await assertBounded("gateway", ofTenant);
  await assertBounded("dispatcher", ofAll);
});

async function assertBounded(role: "gateway" | "dispatcher", questions: readonly Question[]): Promise<void> {
  const client = new Client(kernel.settings);
  await client.connect();
  try {
    await client.query(`set role holdfast_${role}`);
    await client.query("select set_config('holdfast.tenant', $1, false)", [tenantA]);
    for (const [number, [{ name, text }, values]] of questions.entries()) {
      await client.query(`prepare question${number} as ${text}`);
      const given = values.map((value) => escapeLiteral(value)).join(", ");
      for (const mode of ["force_custom_plan", "force_generic_plan"]) {
        await client.query(`set plan_cache_mode = ${mode}`);
        const { rows } = await client.query<{ "QUERY PLAN": [{ Plan: Plan }] }>(
          `explain (analyze, format json) execute question${number}${given === "" ? "" : `(${given})`}`,
        );
        const [{ Plan: plan }] = rows[0]?.["QUERY PLAN"] ?? assert.fail("no plan");
        for (const { what, rows: read } of walks(plan)) {
          assert.ok(read <= most, `${name}, ${mode}: ${what} read ${read} rows`);
        }
      }
    }
  } finally {
    await client.end();
  }
}

test("a glance at very much says how much it looked at", async () => {
  const { jobs, activations, deliveries, work, leases, unproven } = await readOverview(kernel.db, tenantA);
  assert.deepEqual([jobs.waiting, activations.queued, deliveries.pending], [most, most, most]);
  assert.deepEqual([deliveries.dead, unproven], [most, 0]);
  assert.deepEqual(work, [{ state: "pending", count: most }]);
  const attended = leaseKinds.length - 1;
  assert.deepEqual([leases.held, leases.due, leases.partial], [0, attended * most, true]);
  const none = await readOverview(kernel.db, brandId<TenantId>("tenant-c"));
  assert.deepEqual(none.leases, { held: 0, due: 0, partial: false, oldest: null });
});

test("the leases of one resource are found among many, and of no other tenant", async () => {
  const last = `0${many.toString(16).padStart(7, "0")}-0000-7000-8000-000000000000`;
  const filter = { kind: null, resource: last };
  const found = await listLeases(kernel.db, tenantA, filter);
  assert.deepEqual(
    found.map(({ kind, resource_id }) => `${kind} ${resource_id}`).toSorted(),
    leaseKinds.map((kind) => `${kind} ${last}`).toSorted(),
  );
  assert.deepEqual(await listLeases(kernel.db, tenantB, filter), []);
  const one = await listLeases(kernel.db, tenantA, { ...filter, kind: "session" });
  assert.deepEqual(
    one.map(({ kind }) => kind),
    ["session"],
  );
});

test("what each process holds is counted, and estimated among very much Work", async () => {
  const holder = "01976b2c-0000-7000-8000-000000000001";
  await kernel.ask(
    `insert into holdfast.incarnations (incarnation_id, process, release, schema_minimum, schema_maximum, deployment_epoch)
     values ($1, 'worker', '1', 12, 12, 1)`,
    [holder],
  );
  const hold = (kind: string, count: number) =>
    kernel.ask(
      `update holdfast.leases_${kind} l set holder = $1, wake_at = now() + interval '1 h'${kind === "work" ? ", work_state = 'leased'" : ""}
       from (select tenant_id, resource_id from holdfast.leases_${kind} order by tenant_id, resource_id limit $2) f
       where l.tenant_id = f.tenant_id and l.resource_id = f.resource_id`,
      [holder, count],
    );
  await hold("execution", 7);
  assert.equal(await held(), 7);
  await hold("work", manyWork);
  const estimated = (await held()) - 7;
  assert.ok(Math.abs(estimated - manyWork) < manyWork * 0.25, `${estimated} is an estimate of ${manyWork}`);

  async function held(): Promise<number> {
    const { incarnations } = await readSystem(kernel.db);
    return incarnations.find(({ id }) => id === holder)?.leases ?? assert.fail("it is not there");
  }
});
