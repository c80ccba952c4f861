import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { Client } from "pg";
import { rolesDocument } from "../../scripts/roles/document.ts";
import { probeRole, type RoleRights, runtimeRoles } from "../../scripts/roles/probe.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { populateStore } from "./populate.ts";

const page = new URL("../../docs/reference/roles.md", import.meta.url);

/** Whoever may call these acts for tenants beside the one that the transaction names, and why that is right. */
const acrossTenants: ReadonlyMap<string, string> = new Map([
  ["stamp_changes", "positions are the installation's; no payload is read"],
]);

/** These name the tenant by an argument of their own: a role that plays for several tenants says which, each time. */
const namesItsTenant = /\bp?_?tenant text\b/;

describe("M4", () => {
  let database: TestDatabase;
  let client: Client;
  const rights: RoleRights[] = [];
  const hooks: (() => void)[] = [];

  before(async () => {
    database = await testDatabase({ after: (hook) => hooks.push(hook) });
    client = new Client(database.superuser);
    client.on("error", () => undefined);
    await client.connect();
    for (const tenant of ["acme", "other"]) await populateStore(client, tenant);
    for (const role of runtimeRoles) rights.push(await probeRole(client, role));
  });
  after(async () => {
    await client.end();
    for (const hook of hooks) hook();
  });

  test("M4: each role can do exactly what docs/reference/roles.md says, by trying everything", async () => {
    assert.equal(await readFile(page, "utf8"), rolesDocument(rights), "npm run generate");
  });

  test("M4: what was tried is what the catalogue grants, column by column", async () => {
    const { rows } = await client.query<{ role: string; table: string; verb: string; columns: string[] }>(
      `select r.role, c.relname as table, v.verb, array_agg(a.attname::text order by a.attnum) as columns
       from unnest($1::text[]) as r (role), (values ('select'), ('insert'), ('update')) as v (verb),
         pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
       where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p', 'v')
         and (a.attgenerated = '' or v.verb = 'select') and has_column_privilege('holdfast_' || r.role, c.oid, a.attnum, v.verb)
       group by 1, 2, 3`,
      [runtimeRoles],
    );
    const granted = new Map(
      rows.map(({ role, table, verb, columns }) => [`${role} ${verb} ${table}`, columns]),
    );
    for (const { role, tables } of rights) {
      for (const { table, reads, inserts, updates } of tables) {
        const tried = { select: reads, insert: inserts, update: updates };
        for (const [verb, columns] of Object.entries(tried)) {
          assert.deepEqual(
            columns,
            granted.get(`${role} ${verb} ${table}`) ?? [],
            `${role} ${verb} ${table}`,
          );
        }
      }
    }
  });

  test("M4: no role of a process may truncate, refer to, hang a trigger on or maintain a table", async () => {
    const { rows } = await client.query(
      `select r.role, c.relname from unnest($1::text[]) as r (role), pg_class c
       where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p', 'v')
         and has_table_privilege('holdfast_' || r.role, c.oid, 'truncate, references, trigger, maintain')`,
      [runtimeRoles],
    );
    assert.deepEqual(rows, []);
  });

  for (const role of runtimeRoles) {
    test(`M4: no function that holdfast_${role} may call reaches another tenant's rows`, async () => {
      const mine = rights.find((one) => one.role === role);
      assert.ok(mine !== undefined && mine.functions.length > 0);
      const { rows: functions } = await client.query<{ name: string; call: string; named: string }>(
        `select p.proname as name, pg_get_function_identity_arguments(p.oid) as named,
           format('select f::text as answer from holdfast.%I(%s) as f', p.proname, (
             select string_agg(case format_type(t.type, null)
               when 'uuid' then '$1::uuid' when 'text' then '''default''' when 'bigint' then '1::bigint' when 'integer' then '10'
               else format('null::%s', format_type(t.type, null)) end, ', ' order by t.place)
             from unnest(p.proargtypes::oid[]) with ordinality as t (type, place))) as call
         from pg_proc p where p.pronamespace = 'holdfast'::regnamespace and p.prorettype <> 'trigger'::regtype
           and p.oid::regprocedure::text = any($1)`,
        [mine.functions],
      );
      const others = await identifiers();
      await client.query("begin");
      try {
        const untouched = await digestOf("other");
        await client.query("select set_config('holdfast.tenant', 'acme', true)");
        for (const { name, call, named } of functions) {
          if (acrossTenants.has(name) || namesItsTenant.test(named)) continue;
          const ids = call.includes("$1") ? others : ["none"];
          for (const id of ids) await tryCall(role, call, id === "none" ? [] : [id], name);
        }
        assert.equal(await digestOf("other"), untouched);
      } finally {
        await client.query("rollback");
      }
    });
  }

  /** Keeps what the call does, so that the digest afterwards tells; its answer names nobody else's tenant. */
  async function tryCall(role: string, call: string, values: string[], name: string): Promise<void> {
    await client.query(`savepoint tried; set local role holdfast_${role}`);
    try {
      const { rows } = await client.query<{ answer: string | null }>(call, values);
      await client.query("set local role none; release savepoint tried");
      for (const { answer } of rows) assert.doesNotMatch(answer ?? "", /\bother\b/, name);
    } catch (error) {
      if (error instanceof assert.AssertionError) throw error;
      await client.query("rollback to savepoint tried");
    }
  }

  /** Of everything that the other tenant has. */
  async function identifiers(): Promise<string[]> {
    const { rows: columns } = await client.query<{ table: string; column: string }>(
      `select c.relname as table, a.attname as column from pg_class c
       join pg_attribute a on a.attrelid = c.oid and a.atttypid = 'uuid'::regtype and a.attnum > 0
       join pg_attribute t on t.attrelid = c.oid and t.attname = 'tenant_id'
       where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition`,
    );
    const each = columns.map(
      ({ table, column }) => `select ${column}::text as id from holdfast.${table} where tenant_id = 'other'`,
    );
    const { rows } = await client.query<{ id: string | null }>(each.join(" union "));
    return rows.flatMap(({ id }) => id ?? []);
  }

  async function digestOf(tenant: string): Promise<string> {
    await client.query("set local role none");
    const { rows: tables } = await client.query<{ table: string }>(
      `select c.relname as table from pg_class c join pg_attribute t on t.attrelid = c.oid and t.attname = 'tenant_id'
       where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition order by 1`,
    );
    const each = tables.map(
      ({ table }) =>
        `select '${table} ' || t::text as line from holdfast.${table} t where tenant_id = '${tenant}'`,
    );
    const { rows } = await client.query<{ digest: string }>(
      `select md5(string_agg(line, E'\\n' order by line collate "C")) as digest from (${each.join(" union all ")}) l`,
    );
    return rows[0]?.digest ?? "";
  }
});
