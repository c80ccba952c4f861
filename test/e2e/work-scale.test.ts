import assert from "node:assert/strict";
import { after, test } from "node:test";
import { readWorkLoad } from "../../src/main/work-load.store.ts";
import type { WorkView } from "../../src/wire/work.ts";
import { openWorkApi } from "../support/work-api.ts";

const api = await openWorkApi({ after });
const { bench, number } = api;
const { kernel, a, call } = bench;
const { ask } = kernel;

/** As many as make a look at all of them too dear: waiting ones and finished ones of one tenant. */
const many = 40_000;
const ids = `('01' || lpad(to_hex(n), 6, '0') || '-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid`;
await ask(
  `insert into holdfast.work_items (tenant_id, work_id, version_number, fingerprint_schema, fingerprint, input, queue, priority,
     accepted_at, due_at, attempts_max, retry_initial_microseconds, retry_longest_microseconds, elapsed_max_microseconds, lease_max_microseconds)
   select 'tenant-a', ${ids}, $1, 1, sha256('x'), '1', 'bulk', 2, now(), now(), 3, 0, 0, 1000000000, 1000000
   from generate_series(1, $2::int) as n`,
  [number, 2 * many],
);
await ask(
  `insert into holdfast.leases_work (tenant_id, kind, resource_id, queue, priority, due_at, wake_at, work_state, attempt)
   select 'tenant-a', 'work', ${ids}, $1, 2, now() + interval '1 d', now() + interval '1 d', 'pending', 0
   from generate_series(1, $2::int) as n`,
  [`${number}.bulk`, many],
);
await ask(
  `insert into holdfast.work_history (tenant_id, work_id, state, attempts, finished_at, holder, epoch, permit_admitted_at)
   select 'tenant-a', ${ids}, 'succeeded', 1, now(), gen_random_uuid(), n, now()
   from generate_series($1::int + 1, 2 * $1::int) as n`,
  [many],
);
await ask("analyze");

/** Pages that a statement touched, whatever it found. */
async function pagesOf(sql: string): Promise<number> {
  const [row] = await ask<{ "QUERY PLAN": { Plan: Record<string, number> }[] }>(
    `explain (analyze, buffers, format json) ${sql}`,
  );
  const plan = row?.["QUERY PLAN"][0]?.Plan ?? {};
  return (plan["Shared Hit Blocks"] ?? 0) + (plan["Shared Read Blocks"] ?? 0);
}

test("W5: whoever finds nothing due reads nothing of what is due later", async () => {
  const lane = `${number}.bulk`;
  const none = "'00000000-0000-0000-0000-000000000000'";
  const line = `array['${lane}'], array[2::smallint], array['tenant-a'], array['-infinity'::timestamptz], array[${none}::uuid]`;
  const [store] = await ask<{ epoch: string }>("select deployment_epoch::text as epoch from holdfast.store");
  const of = `${store?.epoch}, gen_random_uuid()`;
  const nothing = (count: number) => Array(count).fill("'{}'").join();
  for (const [what, look] of [
    ["claim", `holdfast.claim_work(${of}, array['${lane}'], 100, 1000000)`],
    ["turn", `holdfast.turn_work(${of}, array['tenant-a'], ${nothing(18)}, ${line}, 100, 1000000)`],
    ["what is read back", `holdfast.taken_work(${of}, ${line}, 100, '{}')`],
  ]) {
    // The first time it is planned, which looks at catalogues.
    await pagesOf(`select ${look}`);
    const pages = await pagesOf(`select ${look}`);
    assert.ok(pages < 60, `${what}: ${pages} pages`);
  }
});

test("W12: a page of a list looks at a bounded number of rows, whatever its filter finds among many", async () => {
  const whole = await pagesOf("select count(*) from holdfast.leases_work");
  await ask("select set_config('holdfast.tenant', 'tenant-a', false)");
  for (const state of ["null", "'permitted'", "'succeeded'", "'failed'", "'suspended'"]) {
    const look = `select * from holdfast.look_for_work(${state}, 'ffffffff-ffff-ffff-ffff-ffffffffffff', 100)`;
    const pages = await pagesOf(look);
    assert.ok(pages < 250, `${state}: ${pages} pages of more than ${whole}`);
  }
  const running = await api.submit();
  await api.permit();
  const suspended = await api.submit({ queue: "mail" });
  await api.view(suspended, "suspend");
  const failed = await api.submit({ queue: "mail" });
  await api.view(failed, "cancel");
  const found = async (query: string) => {
    let [pages, token] = [0, ""];
    const items: string[] = [];
    for (;;) {
      const reply = await call(a, "GET", `/v1/work?${query}${token}`);
      const page = reply.json<{ items: WorkView[]; next_page_token: string | null }>();
      pages += 1;
      items.push(...page.items.map(({ id }) => id));
      if (page.next_page_token === null) return { pages, items };
      token = `&page_token=${page.next_page_token}`;
    }
  };
  assert.deepEqual(await found("state=suspended"), { pages: 1, items: [suspended] });
  assert.deepEqual(await found("state=cancelled_before_effect"), { pages: 1, items: [failed] });
  const rare = await found("state=permitted");
  assert.deepEqual(rare.items, [running], "among forty thousand that wait");
  assert.ok(rare.pages >= many / 2_000 && rare.pages <= many / 2_000 + 2, `${rare.pages} pages`);
});

test("W12 W2: metrics count Work over all tenants in a bounded number of pages, and name nobody", async () => {
  await ask(
    "insert into holdfast.work_circuits (tenant_id, circuit_key, failures, opened_at, probe_at) values ('tenant-b', 'bank', 9, now(), now()), ('tenant-a', 'post', 1, null, null)",
  );
  await ask(
    `insert into holdfast.work_observations (tenant_id, observation_id, work_id, attempt, holder, epoch, outcome, reason)
     values ('tenant-b', gen_random_uuid(), gen_random_uuid(), 1, gen_random_uuid(), 1, 'succeeded', 'superseded')`,
  );
  const [{ pages } = { pages: 0 }] = await ask<{ pages: number }>(
    "select (pg_relation_size('holdfast.leases_work') / 8192)::int as pages",
  );
  assert.ok(pages > 600, `${pages} pages are more than a reading looks at`);
  await api.submit();
  await api.clock.advance(5_000_000n);
  const load = await readWorkLoad(kernel.db);
  const pending = load.items.get("pending") ?? 0;
  assert.ok(Math.abs(pending - many) < many * 0.15, `${pending} is an estimate of ${many}`);
  assert.equal(load.items.get("suspended"), 1, "counted, not estimated");
  assert.equal(load.oldestDueSeconds, 5);
  assert.equal(load.unattended, 3, "default, mail and bulk: nobody has the version");
  assert.deepEqual([load.circuitsOpen, [...load.quarantined]], [1, [["superseded", 1]]]);
  await ask(
    "insert into holdfast.incarnations (incarnation_id, process, release, schema_minimum, schema_maximum, deployment_epoch, seen_at) values ('01976b2c-0000-7000-8000-000000000001', 'w', '1', 12, 12, 1, holdfast.ledger_now())",
  );
  await ask(
    "insert into holdfast.work_runners (incarnation_id, version_number) values ('01976b2c-0000-7000-8000-000000000001', $1)",
    [number],
  );
  assert.equal((await readWorkLoad(kernel.db)).unattended, 0);
});
