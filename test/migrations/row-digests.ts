import type { Client } from "pg";

export interface TableDigest {
  readonly table: string;
  readonly rows: number;
  /** Where the table lies: a rewrite of the whole moves it. */
  readonly file: string;
  readonly digest: string;
}

/** The tables of the store and the columns that they have now; later ones are not asked for. */
export async function columnsOf(client: Client): Promise<ReadonlyMap<string, string>> {
  const { rows } = await client.query<{ table: string; columns: string }>(
    `select c.relname as table, string_agg(quote_ident(a.attname), ', ' order by a.attnum) as columns
     from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
     where c.relnamespace = 'holdfast'::regnamespace and c.relkind = 'r' and c.relname <> 'store' and not starts_with(c.relname, 'schema_')
     group by 1 order by 1`,
  );
  return new Map(rows.map(({ table, columns }) => [table, columns]));
}

/** Of every row's text, place in the file and writing transaction: any rewrite shows. */
export async function digests(client: Client, tables: ReadonlyMap<string, string>): Promise<TableDigest[]> {
  const found: TableDigest[] = [];
  for (const [table, columns] of tables) {
    const { rows } = await client.query<TableDigest>(
      `select '${table}' as table, count(*)::int as rows, pg_relation_filenode('holdfast.${table}')::text as file,
         encode(sha256(convert_to(coalesce(string_agg(row(${columns}, ctid, xmin)::text, E'\\n' order by ctid), ''), 'UTF8')), 'hex') as digest
       from holdfast.${table}`,
    );
    found.push(...rows);
  }
  return found;
}
