import type { Client } from "pg";

/** Each part gives text lines that say everything about one kind of object in the schema. */
const parts = [
  `select format('class %s %s %s rls=%s/%s owner=%s acl=%s %s', c.oid::regclass, c.relkind, c.relpersistence,
     c.relrowsecurity, c.relforcerowsecurity, c.relowner::regrole, c.relacl, c.reloptions) as line
   from pg_class c where c.relnamespace = 'holdfast'::regnamespace`,
  `select format('column %s.%s %s %s notnull=%s default=%s acl=%s', a.attrelid::regclass, a.attname, a.attnum,
     format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attacl)
   from pg_attribute a join pg_class c on c.oid = a.attrelid
   left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
   where c.relnamespace = 'holdfast'::regnamespace and a.attnum > 0 and not a.attisdropped`,
  `select format('constraint %s.%s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
   from pg_constraint where connamespace = 'holdfast'::regnamespace`,
  "select format('index %s', indexdef) from pg_indexes where schemaname = 'holdfast'",
  `select format('function %s owner=%s acl=%s %s', p.oid::regprocedure, p.proowner::regrole, p.proacl, pg_get_functiondef(p.oid))
   from pg_proc p where p.pronamespace = 'holdfast'::regnamespace and p.prokind in ('f', 'p')`,
  `select format('trigger %s', pg_get_triggerdef(t.oid)) from pg_trigger t join pg_class c on c.oid = t.tgrelid
   where c.relnamespace = 'holdfast'::regnamespace and not t.tgisinternal`,
  `select format('policy %s.%s %s %s %s %s %s', tablename, policyname, permissive, roles, cmd, qual, with_check)
   from pg_policies where schemaname = 'holdfast'`,
  `select format('default acl %s %s %s', defaclrole::regrole, defaclobjtype, defaclacl) from pg_default_acl`,
  `select format('schema %s %s', nspowner::regrole, nspacl) from pg_namespace where nspname = 'holdfast'`,
  `select format('history %s %s %s %s', version, name, checksum, applied_at) from holdfast.schema_migrations`,
];

/** Everything that a migration could have changed, in an order of its own. */
export async function schemaLines(client: Client): Promise<string[]> {
  const { rows } = await client.query<{ line: string }>(`${parts.join("\nunion all\n")}\norder by 1`);
  return rows.map((row) => row.line);
}

/** The same without what depends on the moment of applying. */
export async function schemaShape(client: Client): Promise<string[]> {
  const lines = await schemaLines(client);
  return lines.map((line) => (line.startsWith("history ") ? line.split(" ").slice(0, 4).join(" ") : line));
}

/** A digest of every row of a table, whatever its columns are. */
export async function rowsDigest(client: Client, table: string): Promise<{ rows: string; digest: string }> {
  const { rows } = await client.query<{ rows: string; digest: string }>(
    `select count(*)::text as rows, encode(sha256(convert_to(coalesce(
       string_agg(t::text, E'\\n' order by t::text collate "C"), ''), 'UTF8')), 'hex') as digest from ${table} t`,
  );
  const [result] = rows;
  if (result === undefined) throw new Error("an aggregate gives one row");
  return result;
}
