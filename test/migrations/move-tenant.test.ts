import assert from "node:assert/strict";
import { test } from "node:test";
import type { Client } from "pg";
import { testDatabase, withClient } from "../support/database.ts";
import { danglingReferences, moveTenant, tenantTables } from "./move-tenant.ts";
import { populateStore } from "./populate.ts";

async function rowsOf(client: Client, tenant: string): Promise<Record<string, string[]>> {
  const found: Record<string, string[]> = {};
  for (const table of await tenantTables(client)) {
    const { rows } = await client.query<{ line: string }>(
      `select t::text as line from holdfast.${table} t where tenant_id = $1 order by 1`,
      [tenant],
    );
    found[table] = rows.map(({ line }) => line);
  }
  return found;
}

test("S9: everything of a tenant is its own: its rows move to another store whole, and refer to nothing that stays behind", async (t) => {
  const [here, there] = [await testDatabase(t), await testDatabase(t)];
  await withClient(here.superuser, (from) =>
    withClient(there.superuser, async (to) => {
      for (const tenant of ["acme", "other"]) await populateStore(from, tenant);
      const [acme, other] = [await rowsOf(from, "acme"), await rowsOf(from, "other")];
      const moved = await moveTenant(from, to, "acme");
      assert.ok(moved > Object.keys(acme).length);
      assert.deepEqual(await rowsOf(to, "acme"), acme);
      assert.deepEqual(Object.values(await rowsOf(to, "other")).flat(), []);
      assert.deepEqual(await danglingReferences(to), []);
      assert.deepEqual(await rowsOf(from, "other"), other);
      // What gives positions and epochs goes on above those that came.
      const { rows } = await to.query<{ above: boolean }>(
        `select nextval('holdfast.lease_epochs') > coalesce(max(epoch), 0)
           and (select position from holdfast.change_counter) >= coalesce((select max(position) from holdfast.resource_changes), 0) as above
         from holdfast.leases`,
      );
      assert.deepEqual(rows, [{ above: true }]);
      // Twice changes nothing: a move that broke off is begun again.
      assert.equal(await moveTenant(from, to, "acme"), 0);
    }),
  );
});
