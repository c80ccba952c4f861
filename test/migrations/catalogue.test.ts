import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Client } from "pg";
import { type TestDatabase, testDatabase, withClient } from "../support/database.ts";
import { populateSchema6, populateSchema7, populateSchema10, populateSchema11 } from "./populate.ts";

const runtimeRoles = ["gateway", "controller", "worker", "producer", "dispatcher", "operator", "retention"];

/** Not a tenant's: tables whose rows belong to the installation, or that name a tenant without being its own. */
const keysWithoutTenant: ReadonlyMap<string, string> = new Map([
  ["slots_pkey", "slots belong to the installation; a tenant only takes one"],
]);

/** Tables of the installation, which every tenant's rows live beside. All are small. */
const tablesWithoutTenant: ReadonlyMap<string, string> = new Map([
  ["change_counter", "one row: positions are the installation's"],
  ["drains", "at most one row a kind: a drain is of all tenants"],
  ["incarnations", "processes serve every tenant"],
  ["operator_actions", "what was done to the installation"],
  ["schema_migrations", "the schema's own history"],
  ["schema_online_steps", "the schema's own history"],
  ["store", "one row: which store this is"],
  ["work_runners", "which processes run which versions"],
  ["work_versions", "definitions of programs, without anybody's data"],
]);

/** Foreign keys to tenants lock its row at each insert, so only what is rarely written has one. */
const referencesToTenants: ReadonlyMap<string, string> = new Map([
  ["principals", "a handful a tenant, made by operators"],
]);

const definers: ReadonlyMap<string, string> = new Map([
  ["authenticate", "a request has no tenant before its token is known"],
  ["admit_subject", "the principal of whom an issuer vouches for is made at first sight; tenants are not"],
]);

/** What each role sees of other tenants, or of all while none is named; anything else is a leak. */
const acrossTenants: ReadonlyMap<string, ReadonlySet<string>> = new Map([
  // The sweep of old commands sees none younger than 30 days, so nothing here: command-sweep.test.ts shows it.
  ["dispatcher", new Set(["leases", "leases_work", "resource_changes", "slots"])],
  ["operator", new Set(["tenants", "slots"])],
  // Only the names of the pools: the column grant keeps the holders out.
  ["gateway", new Set(["slots"])],
]);

describe("M4", () => {
  let database: TestDatabase;
  let client: Client;
  const hooks: (() => void)[] = [];

  before(async () => {
    database = await testDatabase({ after: (hook) => hooks.push(hook) });
    client = new Client(database.superuser);
    client.on("error", () => undefined);
    await client.connect();
    for (const tenant of ["acme", "other"]) {
      await populateSchema7(client, tenant, await populateSchema6(client, tenant));
      await populateSchema10(client, tenant);
      await populateSchema11(client, tenant);
    }
  });
  after(async () => {
    await client.end();
    for (const hook of hooks) hook();
  });

  const names = async (sql: string): Promise<string[]> => {
    const { rows } = await client.query<{ name: string }>(sql);
    return rows.map((row) => row.name);
  };

  const tenantTables = () =>
    names(
      `select c.relname as name from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id'
       where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p') order by 1`,
    );

  test("M4: every table with a tenant has row-level security, enabled and forced", async () => {
    assert((await tenantTables()).length > 10);
    const open = await names(
      `select c.relname as name from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id'
       where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p')
         and not (c.relrowsecurity and c.relforcerowsecurity)`,
    );
    assert.deepEqual(open, []);
  });

  test("M4: every table with a tenant has a row here, so that the probes below prove something", async () => {
    for (const table of await tenantTables()) {
      const { rowCount } = await client.query(`select from holdfast.${table} where tenant_id = 'acme'`);
      assert.notEqual(rowCount, 0, table);
    }
  });

  test("M4: no role of ours is a superuser, bypasses row-level security, makes roles or logs in", async () => {
    const roles = runtimeRoles.concat("owner").map((role) => `holdfast_${role}`);
    const { rows } = await client.query<{ rolname: string; mighty: boolean }>(
      `select rolname, rolsuper or rolbypassrls or rolcreaterole or rolcreatedb or rolreplication or rolcanlogin as mighty
       from pg_roles where rolname = any($1) order by 1`,
      [roles],
    );
    assert.deepEqual(
      rows,
      roles.sort((a, b) => a.localeCompare(b)).map((rolname) => ({ rolname, mighty: false })),
    );
  });

  test("M4: runtime roles own nothing and are members of nothing", async () => {
    const roles = runtimeRoles.map((role) => `'holdfast_${role}'`).join(", ");
    const owned = await names(
      `select d.classid::regclass || ' ' || d.objid as name from pg_shdepend d
       where d.deptype = 'o' and d.refobjid in (select oid from pg_roles where rolname in (${roles}))`,
    );
    const memberships = await names(
      `select roleid::regrole::text as name from pg_auth_members
       where member in (select oid from pg_roles where rolname in (${roles}))`,
    );
    assert.deepEqual([owned, memberships], [[], []]);
    const others = await names(
      `select relname as name from pg_class where relnamespace = 'holdfast'::regnamespace and relowner <> 'holdfast_owner'::regrole
       union all select proname from pg_proc where pronamespace = 'holdfast'::regnamespace and proowner <> 'holdfast_owner'::regrole`,
    );
    assert.deepEqual(others, []);
  });

  test("M4: PUBLIC has nothing on the schema, its tables, columns, sequences and functions", async () => {
    const granted = await names(
      `with objects(name, acl) as (
         select nspname::text, coalesce(nspacl, acldefault('n', nspowner)) from pg_namespace where nspname = 'holdfast'
         union all
         select relname, coalesce(relacl, acldefault(case relkind when 'S' then 's'::"char" else 'r'::"char" end, relowner))
         from pg_class where relnamespace = 'holdfast'::regnamespace and relkind in ('r', 'p', 'v', 'm', 'S')
         union all
         select attrelid::regclass || '.' || attname, attacl from pg_attribute join pg_class c on c.oid = attrelid
         where c.relnamespace = 'holdfast'::regnamespace and attacl is not null
         union all
         select oid::regprocedure::text, coalesce(proacl, acldefault('f', proowner))
         from pg_proc where pronamespace = 'holdfast'::regnamespace
       )
       select distinct name from objects, aclexplode(acl) as entry where entry.grantee = 0`,
    );
    assert.deepEqual(granted, []);
  });

  test("S9: every table is a tenant's, or has a reason not to be", async () => {
    const shared = await names(
      `select c.relname as name from pg_class c where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p')
         and not exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant_id') order by 1`,
    );
    assert.deepEqual(shared, [...tablesWithoutTenant.keys()]);
  });

  test("S9: every primary key and unique constraint of a tenant's table starts with its tenant", async () => {
    const wrong = await names(
      `select i.relname as name from pg_index x
       join pg_class i on i.oid = x.indexrelid join pg_class c on c.oid = x.indrelid
       join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id'
       where c.relnamespace = 'holdfast'::regnamespace and x.indisunique and x.indkey[0] <> a.attnum order by 1`,
    );
    assert.deepEqual(wrong, [...keysWithoutTenant.keys()]);
  });

  test("M4: no table that is written often refers to tenants", async () => {
    const referring = await names(
      `select conrelid::regclass::text as name from pg_constraint
       where contype = 'f' and confrelid = 'holdfast.tenants'::regclass`,
    );
    const tables = referring.map((name) => name.replace(/^holdfast\./, ""));
    assert.deepEqual(
      tables.filter((name) => !referencesToTenants.has(name)),
      [],
    );
  });

  test("M4: a foreign key between tenants' rows carries the tenant", async () => {
    const loose = await names(
      `select conname as name from pg_constraint f
       join pg_attribute a on a.attrelid = f.conrelid and a.attname = 'tenant_id'
       where f.contype = 'f' and f.connamespace = 'holdfast'::regnamespace and f.conkey[1] <> a.attnum`,
    );
    assert.deepEqual(loose, []);
  });

  test("M4: every function pins its search path or has a body bound at creation", async () => {
    const loose = await names(
      `select proname as name from pg_proc where pronamespace = 'holdfast'::regnamespace and prosqlbody is null
         and not coalesce(exists (select from unnest(proconfig) as setting where starts_with(setting, 'search_path=')), false)`,
    );
    assert.deepEqual(loose, []);
  });

  test("M4: only listed functions act with their owner's rights", async () => {
    const definer = await names(
      "select proname as name from pg_proc where pronamespace = 'holdfast'::regnamespace and prosecdef order by 1",
    );
    assert.deepEqual(definer, [...definers.keys()].toSorted());
  });

  test("M4: the dispatcher, who sees all tenants, reads no payload", async () => {
    const readable = await names(
      `select c.relname || '.' || a.attname as name from pg_class c join pg_attribute a on a.attrelid = c.oid
       where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p', 'v', 'm') and a.attnum > 0
         and a.atttypid in ('jsonb'::regtype, 'json'::regtype, 'bytea'::regtype)
         and has_column_privilege('holdfast_dispatcher', c.oid, a.attnum, 'select')`,
    );
    assert.deepEqual(readable, []);
  });

  for (const role of runtimeRoles) {
    const allowed = (table: string) =>
      acrossTenants.get(role)?.has(table.replace(/^leases_.*/, "leases")) === true;

    test(`M4: holdfast_${role} sees no tenant's row while none is named, and only its own afterwards`, async () => {
      const tables = await tenantTables();
      await withClient(database.app, async (session) => {
        await session.query(`set role holdfast_${role}`);
        for (const [tenant, others] of [
          ["", "tenant_id is not null"],
          ["acme", "tenant_id <> 'acme'"],
        ] as const) {
          await session.query("select set_config('holdfast.tenant', $1, false)", [tenant]);
          for (const table of tables.filter((name) => !allowed(name))) {
            const seen = await visible(session, `select tenant_id from holdfast.${table} where ${others}`);
            assert.equal(seen, 0, `${table} with tenant "${tenant}"`);
          }
        }
      });
    });

    test(`M4: holdfast_${role} writes no row of another tenant`, async () => {
      const tables = await tenantTables();
      await withClient(database.app, async (session) => {
        await session.query(`set role holdfast_${role}`);
        await session.query("select set_config('holdfast.tenant', 'acme', false)");
        for (const table of tables.filter((name) => !allowed(name))) {
          // Row-level security is checked before constraints, so the tenant (and what finds the partition) is enough to try.
          const row =
            table === "leases"
              ? "(tenant_id, kind) values ('other', 'work')"
              : "(tenant_id) values ('other')";
          const added = await visible(session, `insert into holdfast.${table} ${row}`);
          const removed = await visible(session, `delete from holdfast.${table} where tenant_id = 'other'`);
          assert.deepEqual([added, removed], [0, 0], table);
          for (const column of await updatable(session, table)) {
            const sql = `update holdfast.${table} set ${column} = ${column} where tenant_id = 'other'`;
            assert.equal(await visible(session, sql), 0, `${table}.${column}`);
          }
        }
      });
    });

    test(`M4: holdfast_${role} can't change the schema or its history`, async () => {
      await withClient(database.app, async (session) => {
        await session.query(`set role holdfast_${role}`);
        for (const sql of [
          "create table holdfast.mine ()",
          "drop table holdfast.jobs",
          "alter table holdfast.jobs disable row level security",
          "insert into holdfast.schema_migrations (version, name, checksum) values (99, 'x', repeat('a', 64))",
          "update holdfast.store set reader_floor = 1",
          "set role holdfast_owner",
        ]) {
          await assert.rejects(session.query(sql), { code: "42501" }, sql);
        }
      });
    });
  }
});

/** How many rows a statement reaches; none where the role has no right to try. Nothing of it is kept. */
async function visible(session: Client, sql: string): Promise<number> {
  await session.query("begin");
  try {
    const { rowCount } = await session.query(sql);
    return rowCount ?? 0;
  } catch (error) {
    assert(error instanceof Error && "code" in error && error.code === "42501", String(error));
    return 0;
  } finally {
    await session.query("rollback");
  }
}

/** The columns that the session's role may change. */
async function updatable(session: Client, table: string): Promise<string[]> {
  const { rows } = await session.query<{ name: string }>(
    `select quote_ident(a.attname) as name from pg_attribute a join pg_class c on c.oid = a.attrelid
     where c.relnamespace = (select oid from pg_namespace where nspname = 'holdfast') and c.relname = $1
       and a.attnum > 0 and not a.attisdropped and has_column_privilege(c.oid, a.attnum, 'update')`,
    [table],
  );
  return rows.map((row) => row.name);
}
