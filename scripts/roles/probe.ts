import type { Client } from "pg";

export const runtimeRoles = [
  "gateway",
  "controller",
  "worker",
  "producer",
  "dispatcher",
  "operator",
  "retention",
] as const;
export type RuntimeRole = (typeof runtimeRoles)[number];

/** What a role could do with one table, by trying. */
export interface TableRights {
  readonly table: string;
  /** Columns, in the table's order. */
  readonly columns: readonly string[];
  /** Those that are not generated. */
  readonly writable: readonly string[];
  readonly reads: readonly string[];
  readonly inserts: readonly string[];
  readonly updates: readonly string[];
  readonly deletes: boolean;
  /** Of a table whose rows are tenants': whether it saw those of others. */
  readonly rows: "its tenant's" | "every tenant's" | "the installation's";
}

export interface RoleRights {
  readonly role: RuntimeRole;
  readonly tables: readonly TableRights[];
  readonly functions: readonly string[];
  readonly sequences: readonly string[];
}

/**
 * Tries everything as one role: each column read, inserted and changed, each table emptied, each function called,
 * each sequence drawn from, and nothing of it kept. A refusal is `permission denied`; whatever else goes wrong comes
 * after the right was found. What row-level security refuses is told by `rows`.
 */
const attempt = `do $probe$
declare
  role constant text := current_setting('probe.role');
  found jsonb := '[]';
  functions jsonb := '[]';
  sequences jsonb := '[]';
  rel record;
  col record;
  fun record;
  reads jsonb; inserts jsonb; updates jsonb; deletes boolean; strangers boolean; denied boolean;
  statement text;
begin
  for rel in
    select c.oid, c.relname, exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant_id') as tenants
    from pg_class c where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p', 'v') order by 2
  loop
    reads := '[]'; inserts := '[]'; updates := '[]'; strangers := false;
    for col in
      select a.attname, v.verb, format(v.pattern, rel.relname, a.attname) as statement
      from pg_attribute a, (values
        (1, 'read', 'select %2$I from holdfast.%1$I limit 0'),
        (2, 'insert', 'insert into holdfast.%1$I (%2$I) overriding system value values (null)'),
        (3, 'update', 'update holdfast.%1$I set %2$I = default where false')) as v (place, verb, pattern)
      where a.attrelid = rel.oid and a.attnum > 0 and not a.attisdropped order by v.place, a.attnum
    loop
      denied := false;
      begin
        perform set_config('role', role, true);
        execute col.statement;
        raise exception 'nothing of it is kept';
      exception when others then
        -- 428C9: a generated column, which nobody writes.
        denied := sqlstate = '428C9' or sqlstate = '42501' and starts_with(sqlerrm, 'permission denied');
      end;
      if not denied then
        case col.verb
          when 'read' then reads := reads || to_jsonb(col.attname);
          when 'insert' then inserts := inserts || to_jsonb(col.attname);
          else updates := updates || to_jsonb(col.attname);
        end case;
      end if;
    end loop;
    deletes := true;
    begin
      perform set_config('role', role, true);
      execute format('delete from holdfast.%I where false', rel.relname);
      raise exception 'nothing of it is kept';
    exception when others then
      deletes := not (sqlstate = '42501' and starts_with(sqlerrm, 'permission denied'));
    end;
    if rel.tenants then
      begin
        perform set_config('role', role, true);
        perform set_config('holdfast.tenant', '', true);
        execute format('select exists (select %I from holdfast.%I)', coalesce(reads ->> 0, 'tenant_id'), rel.relname) into strangers;
        perform set_config('role', 'none', true);
      exception when insufficient_privilege then
        strangers := false;
      end;
      -- Who can't read shows by what may be written.
      if reads = '[]' and inserts @> '["tenant_id"]' then
        begin
          perform set_config('role', role, true);
          perform set_config('holdfast.tenant', 'acme', true);
          execute format('insert into holdfast.%I (tenant_id) values (''other'')', rel.relname);
          strangers := true;
        exception when others then
          strangers := sqlerrm not like '%row-level security%' and sqlerrm not like 'permission denied%' and sqlerrm not like 'no partition%';
        end;
      end if;
    end if;
    found := found || jsonb_build_object('table', rel.relname, 'reads', reads, 'inserts', inserts, 'updates', updates, 'deletes', deletes,
      'columns', (select jsonb_agg(a.attname order by a.attnum) from pg_attribute a where a.attrelid = rel.oid and a.attnum > 0 and not a.attisdropped),
      'writable', (select jsonb_agg(a.attname order by a.attnum) from pg_attribute a
        where a.attrelid = rel.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''),
      'rows', case when not rel.tenants then 'the installation''s' when strangers then 'every tenant''s' else 'its tenant''s' end);
  end loop;
  for fun in
    select p.oid::regprocedure::text as name, p.proname, format('select holdfast.%I(%s)', p.proname,
      (select string_agg(format('null::%s', format_type(t.type, null)), ', ' order by t.place) from unnest(p.proargtypes::oid[]) with ordinality as t (type, place))) as statement
    from pg_proc p where p.pronamespace = 'holdfast'::regnamespace order by 1
  loop
    denied := false;
    begin
      perform set_config('role', role, true);
      execute fun.statement;
      raise exception 'nothing of it is kept';
    exception when others then
      denied := sqlstate = '42501' and sqlerrm = format('permission denied for function %s', fun.proname);
    end;
    if not denied then
      functions := functions || to_jsonb(fun.name);
    end if;
  end loop;
  for rel in select c.relname from pg_class c where c.relnamespace = 'holdfast'::regnamespace and c.relkind = 'S' order by 1 loop
    denied := false;
    begin
      perform set_config('role', role, true);
      execute format('select nextval(''holdfast.%I'')', rel.relname);
      raise exception 'nothing of it is kept';
    exception when others then
      denied := sqlstate = '42501';
    end;
    if not denied then
      sequences := sequences || to_jsonb(rel.relname);
    end if;
  end loop;
  perform set_config('role', 'none', true);
  perform set_config('probe.found', jsonb_build_object('tables', found, 'functions', functions, 'sequences', sequences)::text, true);
end
$probe$`;

/** Needs a superuser's connection to a store with rows of the tenants `acme` and `other` in every table. */
export async function probeRole(client: Client, role: RuntimeRole): Promise<RoleRights> {
  await client.query("begin");
  try {
    await client.query("select set_config('probe.role', $1, true)", [`holdfast_${role}`]);
    await client.query(attempt);
    const { rows } = await client.query<{ found: string }>("select current_setting('probe.found') as found");
    return { role, ...(JSON.parse(rows[0]?.found ?? "{}") as Omit<RoleRights, "role">) };
  } finally {
    await client.query("rollback");
  }
}
