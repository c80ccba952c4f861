import { setTimeout as delay } from "node:timers/promises";
import { listTransactions } from "./earlier.sql.ts";
import { monotonicMs } from "./monotonic.ts";
import { type Database, runAlone } from "./postgres/transition.ts";

const waitMaxMs = 10_000;
const pauseMs = 20;

/**
 * The second step of every fact that is committed without a lock on what it forbids: wait until the transactions that
 * may not have seen it have ended. All that begin later have read it. Gives false when one is still open at the limit.
 */
export async function awaitEarlierTransactions(db: Pick<Database, "pools">): Promise<boolean> {
  const open = async () =>
    new Set((await runAlone(db, "operator", listTransactions, {})).map(({ transaction }) => transaction));
  let before = await open();
  for (const startedMs = monotonicMs(); before.size > 0 && monotonicMs() - startedMs < waitMaxMs; ) {
    await delay(pauseMs);
    const now = await open();
    before = new Set([...before].filter((transaction) => now.has(transaction)));
  }
  return before.size === 0;
}
