import type { Client } from "pg";

/**
 * Adds so many copies of a table's first row, with some columns changed: SQL in which `o` is that row and `n` counts
 * from 1. Without triggers, which look at rows one by one.
 */
export async function copies(
  admin: Client,
  table: string,
  count: number,
  changed: Readonly<Record<string, string>>,
): Promise<void> {
  const { rows } = await admin.query<{ name: string }>(
    `select quote_ident(attname) as name from pg_attribute
     where attrelid = $1::regclass and attnum > 0 and not attisdropped and attgenerated = '' order by attnum`,
    [table],
  );
  const names = rows.map(({ name }) => name);
  const values = names.map((name) => changed[name] ?? `o.${name}`);
  await admin.query("set session_replication_role = replica");
  const { rowCount } = await admin.query(
    `insert into ${table} (${names.join()}) select ${values.join()}
     from (select * from ${table} limit 1) o, generate_series(1, ${count}) n`,
  );
  await admin.query("reset session_replication_role");
  if (rowCount !== count) throw new Error(`${table} has no row to copy`);
}

const hex = "lpad(to_hex(n), 12, '0')";

/** Ids in the order of their making, as a UUID of version 7 has it: `block` keeps those of one kind together. */
export const idOf = (block: number) => `('0190000${block}-0000-7000-8000-' || ${hex})::uuid`;

/** Of `count` tenants in turn, t0 first. */
export const tenantOf = (count: number) => `'t' || n % ${count}`;

export interface Fill {
  /** Items that wait, due one after the other from an hour ago on. */
  readonly waiting: number;
  /** Accepted as well, and due from tomorrow on: every other one in the lines of those that wait. */
  readonly later: number;
  readonly finished: number;
  /** SQL of the tenant of copy `n`. */
  readonly tenant: string;
  /** Where the rest of what is due later is, alone. */
  readonly idleLane: string;
}

/** Fills a store that has an item, its lease, a row of history and a change, and lets it settle. */
export async function fill(
  admin: Client,
  { waiting, later, finished, tenant, idleLane }: Fill,
): Promise<void> {
  // Those of `later` by blocks of ten: each tenant has some in both lanes.
  const laterQueue = `case n / 10 % 2 when 0 then o.queue else '${idleLane}' end`;
  const kinds = [
    { block: 1, count: finished, due: "now() - interval '2 days' + n * interval '1 ms'", lives: false },
    { block: 2, count: waiting, due: "now() - interval '1 hour' + n * interval '1 ms'", lives: true },
    {
      block: 3,
      count: later,
      due: "now() + interval '1 day' + n * interval '1 ms'",
      lives: true,
      queue: laterQueue,
    },
  ];
  for (const { block, count, due, lives, queue = "o.queue" } of kinds) {
    if (count === 0) continue;
    const id = idOf(block);
    const accepted_at = `least(${due}, now())`;
    const idempotency_key = `'${block}-' || n`;
    await copies(admin, "holdfast.work_items", count, {
      tenant_id: tenant,
      work_id: id,
      accepted_at,
      due_at: due,
      idempotency_key,
    });
    // A change tells of up to 500 items, when they are accepted and when they are settled.
    await copies(admin, "holdfast.resource_changes", Math.ceil(count / (lives ? 500 : 250)), {
      tenant_id: tenant,
      change_id: "nextval('holdfast.change_ids')",
      position: `${block}000000000 + n`,
      resource_id: "gen_random_uuid()",
    });
    if (lives)
      await copies(admin, "holdfast.leases_work", count, {
        tenant_id: tenant,
        resource_id: id,
        due_at: due,
        wake_at: due,
        queue,
      });
    else
      await copies(admin, "holdfast.work_history", count, {
        tenant_id: tenant,
        work_id: id,
        finished_at: due,
        epoch: "n",
      });
  }
  await admin.query("vacuum analyze");
  await admin.query("checkpoint");
}
