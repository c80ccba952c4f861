import type { Client } from "pg";
import { catalogueQuery } from "../../src/core/schema/catalogue.ts";

/** Everything that a migration could have changed, in an order of its own. */
export async function schemaLines(client: Client): Promise<string[]> {
  const history =
    "select format('history %s', version), format('%s %s %s', name, checksum, applied_at) from holdfast.schema_migrations";
  const { rows } = await client.query<{ object: string; line: string }>(
    `select * from (${catalogueQuery}) c union all ${history} order by 1, 2`,
  );
  return rows.map(({ object, line }) => `${object} ${line}`);
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
