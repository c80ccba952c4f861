import type { Client } from "pg";

/** Tables in which a tenant has rows, partitions as their own parts. */
export async function tenantTables(client: Client): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `select c.relname as name from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id'
     where c.relnamespace = 'holdfast'::regnamespace and c.relkind = 'r' and c.relname <> 'slots' order by 1`,
  );
  return rows.map(({ name }) => name);
}

/** The columns that are stored as they are given. */
async function columnsOf(client: Client, table: string): Promise<string> {
  const { rows } = await client.query<{ names: string }>(
    `select string_agg(quote_ident(a.attname), ', ' order by a.attnum) as names from pg_attribute a
     where a.attrelid = ('holdfast.' || $1)::regclass and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''`,
    [table],
  );
  return rows[0]?.names ?? "";
}

/** What tenants share and their rows refer to. It has to be the same in every store before a tenant comes. */
const shared = ["work_versions"];

/**
 * Copy all that is a tenant's from one store to another: what a distribution by tenant asks of the schema. The tenant
 * is quiet meanwhile, such as after a drain. Rows keep ids, positions and epochs, so what gives those in the other
 * store goes on above them. Gives the number of rows.
 */
export async function moveTenant(from: Client, to: Client, tenant: string): Promise<number> {
  let moved = 0;
  // As a superuser, so that neither order nor triggers ask twice what the first store has asked already.
  await to.query("begin; set local session_replication_role = replica");
  for (const table of [...shared, ...(await tenantTables(from))]) {
    const columns = await columnsOf(from, table);
    const own = shared.includes(table) ? "true" : "tenant_id = $1";
    const values = shared.includes(table) ? [] : [tenant];
    const { rows } = await from.query<{ rows: string | null }>(
      `select array_agg(t)::text as rows from holdfast.${table} t where ${own}`,
      values,
    );
    const { rowCount } = await to.query(
      `insert into holdfast.${table} (${columns}) overriding system value
       select ${columns} from unnest($1::holdfast.${table}[]) on conflict do nothing`,
      [rows[0]?.rows ?? "{}"],
    );
    moved += rowCount ?? 0;
  }
  const { rows: counters } = await from.query<{ position: string; epoch: string; change: string }>(
    `select position, (select last_value from holdfast.lease_epochs) as epoch, (select last_value from holdfast.change_ids) as change
     from holdfast.change_counter`,
  );
  const [counter] = counters;
  await to.query("update holdfast.change_counter set position = greatest(position, $1)", [counter?.position]);
  await to.query(
    `select setval('holdfast.lease_epochs', greatest($1, (select last_value from holdfast.lease_epochs))),
       setval('holdfast.change_ids', greatest($2, (select last_value from holdfast.change_ids)))`,
    [counter?.epoch, counter?.change],
  );
  await to.query("commit");
  return moved;
}

/** Rows whose foreign key finds nothing, one line a constraint. */
export async function danglingReferences(client: Client): Promise<string[]> {
  const { rows: keys } = await client.query<{ name: string; query: string }>(
    `select k.conname as name, format('select count(*)::int as n from %s c where %s and not exists (select from %s p where %s)',
       k.conrelid::regclass,
       (select string_agg(format('c.%I is not null', a.attname), ' and ') from unnest(k.conkey) as n join pg_attribute a on a.attrelid = k.conrelid and a.attnum = n),
       k.confrelid::regclass,
       (select string_agg(format('p.%I = c.%I', f.attname, a.attname), ' and ')
        from unnest(k.conkey, k.confkey) as n (own, other)
        join pg_attribute a on a.attrelid = k.conrelid and a.attnum = n.own
        join pg_attribute f on f.attrelid = k.confrelid and f.attnum = n.other)) as query
     from pg_constraint k where k.contype = 'f' and k.connamespace = 'holdfast'::regnamespace and k.conparentid = 0`,
  );
  const dangling: string[] = [];
  for (const { name, query } of keys) {
    const { rows } = await client.query<{ n: number }>(query);
    if (rows[0]?.n !== 0) dangling.push(`${name}: ${rows[0]?.n}`);
  }
  return dangling;
}
