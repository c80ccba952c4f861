import type { Client, Pool } from "pg";
import { type ConnectionSettings, connect, type Role } from "../../src/core/postgres/pool.ts";
import type { Database } from "../../src/core/postgres/transition.ts";
import type { Queryable } from "../../src/work/submit.ts";
import { tableWalks } from "../../test/support/table-walks.ts";

export interface Look {
  /** Pages that the call's last statement looked at, in memory or not. */
  readonly pages: number;
  /** Tables of Work that were read from end to end meanwhile. */
  readonly walked: readonly string[];
}

/** What a call is given: a database whose statements all run in one open transaction. */
export interface Hands {
  readonly db: Database;
  readonly on: Queryable;
}

/** One connection that plays a role, and on which everything is rolled back: each call finds the store as it was. */
export interface Undone {
  /** Microseconds of the call's last statement, as its caller sees it. */
  readonly timed: (call: (hands: Hands) => Promise<unknown>) => Promise<number>;
  readonly looked: (call: (hands: Hands) => Promise<unknown>) => Promise<Look>;
  readonly close: () => Promise<void>;
}

type Query = Parameters<Queryable["query"]>[0];

export async function openUndone(
  settings: ConnectionSettings,
  role: Role,
  db: Database,
  timeoutMs: number,
): Promise<Undone> {
  const client = await connect(settings, role, "bench");
  await client.query(`set statement_timeout = ${timeoutMs}`);
  await client.query("set transaction_timeout = 0");
  let [last, pages, explains] = [0, 0, false];
  const on = {
    async query(query: Query) {
      if (explains) pages = await pagesOf(client, query);
      const started = process.hrtime.bigint();
      const result = await client.query(query);
      last = Number(process.hrtime.bigint() - started) / 1_000;
      return result;
    },
  };
  // Whoever has the pool's `query` has all that a statement alone needs.
  const of = () => on as unknown as Pool;
  const hands: Hands = { db: { ...db, pools: { ...db.pools, of } }, on };
  const undone = async (call: (hands: Hands) => Promise<unknown>) => {
    await client.query("begin");
    try {
      await call(hands);
    } finally {
      await client.query("rollback");
    }
  };
  const ask = async <Row extends object>(text: string, values: readonly unknown[]) =>
    (await client.query<Row>(text, [...values])).rows;
  const walks = () => tableWalks(ask, "pg_stat_xact_user_tables");
  return {
    async timed(call) {
      explains = false;
      await undone(call);
      return last;
    },
    async looked(call) {
      explains = true;
      const walked: string[] = [];
      await undone(async (given) => {
        const before = new Map((await walks()).map(({ table, walks: n }) => [table, n]));
        await call(given);
        for (const { table, walks: n } of await walks()) if (n > (before.get(table) ?? 0)) walked.push(table);
      });
      return { pages, walked };
    },
    close: () => client.end(),
  };
}

interface Plan {
  readonly Plan: { readonly "Shared Hit Blocks": number; readonly "Shared Read Blocks": number };
}

/** A function's pages are those of all that it asks. What is explained here is done again afterwards. */
async function pagesOf(client: Client, { text, values }: Query): Promise<number> {
  await client.query("savepoint explained");
  const { rows } = await client.query<{ "QUERY PLAN": readonly Plan[] }>({
    text: `explain (analyze, buffers, timing off, format json) ${text}`,
    values,
  });
  await client.query("rollback to savepoint explained");
  const plan = rows[0]?.["QUERY PLAN"][0]?.Plan;
  if (plan === undefined) throw new Error("the server explained nothing");
  return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"];
}
