import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Migration } from "./migrations.ts";
import { rowsOf, type SchemaSession } from "./session.ts";

/** Rights in one order, whatever order they were granted in. */
const sorted = (acl: string) =>
  `(select string_agg(entry::text, ',' order by entry::text collate "C") from unnest(${acl}) as entry)`;

/**
 * Each part gives objects of the schema with a line that says everything about each. Servers of different versions
 * have to say the same, so NOT NULL constraints, which 18 lists and 17 does not, are told as columns alone.
 */
const parts = [
  `select format('%s %s', case c.relkind when 'S' then 'sequence' when 'v' then 'view' else 'table' end, c.oid::regclass) as object,
     format('%s %s rls=%s/%s owner=%s acl=%s %s sequence=%s %s', c.relkind, c.relpersistence, c.relrowsecurity,
       c.relforcerowsecurity, c.relowner::regrole, ${sorted("c.relacl")}, c.reloptions,
       (select format('%s %s %s %s', s.seqtypid::regtype, s.seqincrement, s.seqmax, s.seqcache) from pg_catalog.pg_sequence s where s.seqrelid = c.oid),
       (select string_agg(format('%s %s %s notnull=%s default=%s identity=%s generated=%s acl=%s', a.attname, a.attnum,
          format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attidentity, a.attgenerated, ${sorted("a.attacl")}),
          ', ' order by a.attnum)
        from pg_catalog.pg_attribute a left join pg_catalog.pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and c.relkind <> 'S')) as line
   from pg_catalog.pg_class c where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'S', 'f')`,
  `select format('constraint %s.%s', k.conrelid::regclass, k.conname), pg_get_constraintdef(k.oid) || ' validated=' || k.convalidated
   from pg_catalog.pg_constraint k where k.connamespace = 'holdfast'::regnamespace and k.contype <> 'n'`,
  `select format('index %s', x.indexrelid::regclass), format('%s valid=%s', pg_get_indexdef(x.indexrelid), x.indisvalid)
   from pg_catalog.pg_index x join pg_catalog.pg_class c on c.oid = x.indrelid where c.relnamespace = 'holdfast'::regnamespace`,
  `select format('function %s', p.oid::regprocedure), format('owner=%s acl=%s %s', p.proowner::regrole, ${sorted("p.proacl")}, pg_get_functiondef(p.oid))
   from pg_catalog.pg_proc p where p.pronamespace = 'holdfast'::regnamespace and p.prokind in ('f', 'p')`,
  `select format('trigger %s.%s', t.tgrelid::regclass, t.tgname), format('%s enabled=%s', pg_get_triggerdef(t.oid), t.tgenabled)
   from pg_catalog.pg_trigger t join pg_catalog.pg_class c on c.oid = t.tgrelid
   where c.relnamespace = 'holdfast'::regnamespace and not t.tgisinternal`,
  `select format('policy holdfast.%s.%s', p.tablename, p.policyname), format('%s %s %s %s %s', p.permissive, p.roles, p.cmd, p.qual, p.with_check)
   from pg_catalog.pg_policies p where p.schemaname = 'holdfast'`,
  `select format('default rights %s %s', a.defaclobjtype, a.defaclnamespace::regnamespace), format('%s', ${sorted("a.defaclacl")})
   from pg_catalog.pg_default_acl a where a.defaclrole = 'holdfast_owner'::regrole`,
  `select 'schema holdfast', format('%s %s', n.nspowner::regrole, ${sorted("n.nspacl")}) from pg_catalog.pg_namespace n where n.nspname = 'holdfast'`,
  `select format('type %s', t.oid::regtype), format('%s %s', t.typtype, t.typowner::regrole) from pg_catalog.pg_type t
   where t.typnamespace = 'holdfast'::regnamespace and t.typtype in ('d', 'e', 'r')`,
];

/** With an empty search path names are written out. The order is the same under every collation. */
export const catalogueQuery = `select object, line from (
${parts.join("\nunion all\n")}
) objects order by object collate "C", line collate "C"`;

/** Every object of the schema with a line about it, as the session's transaction sees it. Needs `search_path = ''`. */
export async function catalogueLines(session: SchemaSession): Promise<ReadonlyMap<string, string>> {
  const rows = await rowsOf<{ object: string; line: string }>(session, catalogueQuery);
  return new Map(rows.map(({ object, line }) => [object, line]));
}

/** The first 64 bits of a SHA-256: enough to see that two lines differ. */
export function lineHash(line: string): string {
  return createHash("sha256").update(line).digest("hex").slice(0, 16);
}

/** What one migration makes of the schema, as it was seen on a fresh store; `npm run generate` writes it. */
export interface MigrationEffect {
  readonly version: number;
  readonly checksum: string;
  readonly floors: { readonly reader: number; readonly writer: number };
  /** Tables that were there before, and the strongest lock that it holds on each until its commit. */
  readonly locks: Readonly<Record<string, string>>;
  /** Objects that it adds or changes, with the hash of their lines; and those that it removes. */
  readonly objects: Readonly<Record<string, string>>;
  readonly removed: readonly string[];
}

/** What one online step makes, on a fresh store that has all migrations and the steps before it. */
export interface OnlineEffect {
  readonly name: string;
  readonly checksum: string;
  readonly objects: Readonly<Record<string, string>>;
  readonly removed: readonly string[];
}

export const catalogueFile = "catalogue.json";

interface Catalogue {
  readonly migrations: readonly MigrationEffect[];
  readonly online: readonly OnlineEffect[];
}

/** What the release's own migrations make; ships beside them. */
export async function readCatalogue(directory: string): Promise<readonly MigrationEffect[]> {
  const text = await readFile(join(directory, catalogueFile), "utf8");
  return (JSON.parse(text) as Catalogue).migrations;
}

/** What the release's online steps make; nothing where nobody has written it down. */
export async function readOnlineEffects(directory: string): Promise<readonly OnlineEffect[]> {
  const text = await readFile(join(directory, catalogueFile), "utf8").catch(() => "{}");
  return (JSON.parse(text) as Partial<Catalogue>).online ?? [];
}

/** What a migration makes; null when the catalogue was not written from its very bytes. */
export function effectOf(
  effects: readonly MigrationEffect[],
  migration: Pick<Migration, "version" | "checksum">,
): MigrationEffect | null {
  const effect = effects[migration.version - 1];
  return effect?.checksum === migration.checksum ? effect : null;
}

/** The schema's objects after these migrations; null when the catalogue does not know all of them. */
export function expectedObjects(
  effects: readonly MigrationEffect[],
  migrations: readonly Pick<Migration, "version" | "checksum">[],
): ReadonlyMap<string, string> | null {
  const objects = new Map<string, string>();
  for (const migration of migrations) {
    const effect = effectOf(effects, migration);
    if (effect === null) return null;
    for (const name of effect.removed) objects.delete(name);
    for (const [name, hash] of Object.entries(effect.objects)) objects.set(name, hash);
  }
  return objects;
}

export interface CatalogueDifference {
  readonly missing: readonly string[];
  readonly changed: readonly string[];
  /** Somebody else's, such as an index of an operator or what a rollback added. Apply goes on beside them. */
  readonly unexpected: readonly string[];
}

export function compareCatalogue(
  { objects, open }: ExpectedStore,
  found: ReadonlyMap<string, string>,
): CatalogueDifference {
  const missing: string[] = [];
  const changed: string[] = [];
  for (const [object, hash] of objects) {
    const line = found.get(object);
    if (open.has(object)) continue;
    if (line === undefined) missing.push(object);
    else if (lineHash(line) !== hash) changed.push(object);
  }
  const unexpected = [...found.keys()].filter((object) => !objects.has(object) && !open.has(object));
  return { missing, changed, unexpected };
}

/** What a store should have, with its online steps as far as they are. */
export interface ExpectedStore {
  readonly objects: ReadonlyMap<string, string>;
  /** Objects that may be there or not, as whatever they are: a step is in the middle of them. */
  readonly open: ReadonlySet<string>;
}
