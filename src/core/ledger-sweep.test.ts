import assert from "node:assert/strict";
import { after, test } from "node:test";
import { append } from "../../test/support/changes.ts";
import { withClient } from "../../test/support/database.ts";
import { openKernel, tenantA, tenantB } from "../../test/support/kernel.ts";
import { readCounter } from "./change.store.ts";
import { sweepLedger } from "./ledger-sweep.ts";
import { transition } from "./postgres/transition.ts";
import { createPrincipal, createTenant } from "./tenant.store.ts";
import { seconds } from "./time.ts";

const kernel = await openKernel({ after });
const { db, ask } = kernel;
const day = 86_400;
const kept = { commands: seconds(30 * day), deliveries: seconds(30 * day), changes: seconds(7 * day) };
const never = new AbortController().signal;

for (const tenant of [tenantA, tenantB]) {
  await createTenant(db, tenant);
  await createPrincipal(db, { tenant, name: "ci" });
}

test("G3: a key is kept for thirty days, whatever a process is told, and no longer than it is told", async () => {
  await ask(
    `insert into holdfast.commands
       (tenant_id, command_id, principal_id, idempotency_key, operation, target, fingerprint, created_at, response_status)
     select tenant_id, gen_random_uuid(), principal_id, 'key-' || n, 'x', '/', sha256('x'), now() - make_interval(days => n), 200
     from holdfast.principals, generate_series(1, 60) n`,
  );
  const ages = async () => {
    const rows = await ask<{ tenant_id: string; oldest: number; n: number }>(
      `select tenant_id, max(extract(day from now() - created_at))::int as oldest, count(*)::int as n
       from holdfast.commands group by 1 order by 1`,
    );
    return rows.map(({ oldest, n }) => [oldest, n]);
  };
  await sweepLedger(db, { ...kept, commands: seconds(40 * day) }, never);
  assert.deepEqual(await ages(), [
    [39, 39],
    [39, 39],
  ]);
  // The database itself keeps what is younger.
  await sweepLedger(db, { ...kept, commands: seconds(1) }, never);
  assert.deepEqual(await ages(), [
    [29, 29],
    [29, 29],
  ]);
});

test("S8: a delivery is kept for a week, whatever a process is told; what is pending never goes", async () => {
  await ask(
    `insert into holdfast.publication_outbox
       (tenant_id, publication_id, source_kind, source_id, session_id, ordinal, destination, payload, created_at, state, settled_at)
     select tenant_id, gen_random_uuid(), 'test', gen_random_uuid(), gen_random_uuid(), 1, 'elsewhere', '{}',
       now() - make_interval(days => n), state, case when state <> 'pending' then now() - make_interval(days => n) end
     from holdfast.tenants, generate_series(1, 60) n, unnest(array['pending', 'delivered', 'dead']) state`,
  );
  const left = async () =>
    (
      await ask<{ state: string; n: number }>(
        "select state, count(*)::int as n from holdfast.publication_outbox group by state, tenant_id order by state",
      )
    ).map(({ state, n }) => `${state} ${n}`);
  await sweepLedger(db, kept, never);
  assert.deepEqual(await left(), [
    "dead 29",
    "dead 29",
    "delivered 29",
    "delivered 29",
    "pending 60",
    "pending 60",
  ]);
  await sweepLedger(db, { ...kept, deliveries: seconds(1) }, never);
  assert.deepEqual(await left(), [
    "dead 6",
    "dead 6",
    "delivered 6",
    "delivered 6",
    "pending 60",
    "pending 60",
  ]);
});

test("G7: the floor goes up before changes go, and only over what is old enough", async () => {
  for (const tenant of [tenantA, tenantB, tenantA]) {
    await transition(db, { role: "gateway", tenant, name: "append" }, (tx) => append(tx, { kind: "test" }));
  }
  await withClient(kernel.database.superuser, (client) =>
    client.query(
      "set session_replication_role = replica; select holdfast.stamp_changes(deployment_epoch, 100) from holdfast.store",
    ),
  );
  await sweepLedger(db, kept, never);
  assert.deepEqual(await readCounter(db), { position: 3n, floor: 0n });
  await withClient(kernel.database.superuser, (client) =>
    client.query(
      "set session_replication_role = replica; update holdfast.resource_changes set at = now() - interval '8 days' where position <> 2",
    ),
  );
  await sweepLedger(db, kept, never);
  assert.deepEqual(await readCounter(db), { position: 3n, floor: 1n });
  assert.deepEqual(await ask("select position::int as position from holdfast.resource_changes order by 1"), [
    { position: 2 },
    { position: 3 },
  ]);
  await withClient(kernel.database.superuser, (client) =>
    client.query(
      "set session_replication_role = replica; update holdfast.resource_changes set at = now() - interval '8 days'",
    ),
  );
  await sweepLedger(db, kept, never);
  assert.deepEqual(await readCounter(db), { position: 3n, floor: 3n });
  assert.deepEqual(await ask("select from holdfast.resource_changes"), []);
});

test("M4: the sweep's role reads no younger command, and no payload of an old one", async () => {
  await withClient(kernel.database.app, async (client) => {
    await client.query("set role holdfast_retention");
    const seen = await client.query("select tenant_id, command_id from holdfast.commands");
    assert.equal(seen.rowCount, 0);
    await assert.rejects(client.query("select response_body from holdfast.commands"), { code: "42501" });
  });
});
