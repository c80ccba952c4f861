import type { Client } from "pg";
import {
  catalogueLines,
  lineHash,
  type MigrationEffect,
  type OnlineEffect,
} from "../../src/core/schema/catalogue.ts";
import { applySchema } from "../../src/core/schema/migrate.ts";
import type { Migration } from "../../src/core/schema/migrations.ts";
import { type OnlineStep, runOnlineSteps } from "../../src/core/schema/online.ts";

/** From the weakest of those that keep somebody from writing. */
const locks = ["ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"] as const;

/** Apply the migrations, then the online steps, to an empty database and write down what each of them makes. */
export async function recordCatalogue(
  client: Client,
  migrations: readonly Migration[],
  steps: readonly OnlineStep[],
): Promise<string> {
  const effects: MigrationEffect[] = [];
  let before: ReadonlyMap<string, string> = new Map();
  await applySchema(client, {
    migrations,
    async beforeCommit({ version, checksum }) {
      const after = await catalogueLines(client);
      const floors = await client.query<{ reader: number; writer: number }>(
        "select reader_floor as reader, writer_floor as writer from holdfast.store",
      );
      effects.push({
        version,
        checksum,
        floors: floors.rows[0] ?? { reader: 0, writer: 0 },
        locks: await heldLocks(client, before),
        ...difference(before, after),
      });
      before = after;
    },
  });
  const online: OnlineEffect[] = [];
  await runOnlineSteps(client, {
    // What an older catalogue says of them does not count here.
    steps: steps.map((step) => ({ ...step, makes: null })),
    version: migrations.length,
    async onDone({ name, checksum }) {
      const after = await catalogueLines(client);
      online.push({ name, checksum, ...difference(before, after) });
      before = after;
    },
  });
  return `${JSON.stringify({ migrations: effects, online }, null, 1)}\n`;
}

function difference(
  before: ReadonlyMap<string, string>,
  after: ReadonlyMap<string, string>,
): Pick<OnlineEffect, "objects" | "removed"> {
  const changed = [...after].filter(([object, line]) => before.get(object) !== line);
  return {
    objects: Object.fromEntries(changed.map(([object, line]) => [object, lineHash(line)])),
    removed: [...before.keys()].filter((object) => !after.has(object)),
  };
}

async function heldLocks(
  client: Client,
  before: ReadonlyMap<string, string>,
): Promise<Record<string, string>> {
  const { rows } = await client.query<{ name: string; mode: (typeof locks)[number] }>(
    `select l.relation::regclass::text as name, l.mode from pg_catalog.pg_locks l join pg_catalog.pg_class c on c.oid = l.relation
     where l.pid = pg_catalog.pg_backend_pid() and l.locktype = 'relation' and l.granted and c.relkind in ('r', 'p')
       and c.relnamespace = 'holdfast'::pg_catalog.regnamespace and l.mode = any($1)
     order by 1, pg_catalog.array_position($1::text[], l.mode)`,
    [locks],
  );
  // The strongest comes last and stays.
  return Object.fromEntries(
    rows.filter(({ name }) => before.has(`table ${name}`)).map(({ name, mode }) => [name, mode]),
  );
}
