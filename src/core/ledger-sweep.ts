import { setTimeout as delay } from "node:timers/promises";
import { advanceFloor, readExpiredPosition, removeChanges } from "./change.sql.ts";
import { removeExpiredCommands } from "./command.sql.ts";
import { type Loop, startLoop } from "./loop.ts";
import { removeSettledPublications } from "./outbox.sql.ts";
import type { Statement } from "./postgres/statement.ts";
import { type Database, runAlone, transition } from "./postgres/transition.ts";
import type { Microseconds } from "./time.ts";

export interface LedgerRetention {
  /** How long an idempotency key and its answer are kept. The database keeps them 30 days at least (G3). */
  readonly commands: Microseconds;
  /** How long a delivery is kept after it was made or given up, an inbox's messages too. A week at least (S8). */
  readonly deliveries: Microseconds;
  /** How long a watch can resume: an older cursor is told so (G7). */
  readonly changes: Microseconds;
}

const batch = 1_000n;
/** Between two batches, so that a store with much to remove still has room for work. */
const breathMs = 50;

/**
 * Removes what the ledger keeps for a time only, a bounded batch a statement, over all tenants. Several
 * processes may do it at once: each finds less to do.
 */
export function startLedgerSweep(options: {
  readonly db: Database;
  readonly retention: LedgerRetention;
  readonly everyMs: number;
  /** What else is kept for a time only: of capabilities that this one does not know. */
  readonly also?: readonly ((signal: AbortSignal) => Promise<void>)[];
  readonly swept?: () => void;
  readonly onError: (error: unknown) => void;
}): Loop {
  return startLoop({
    onError: options.onError,
    async turn(signal) {
      await sweepLedger(options.db, options.retention, signal);
      for (const sweep of options.also ?? []) await sweep(signal);
      options.swept?.();
      await delay(options.everyMs, undefined, { signal }).catch(() => undefined);
    },
  });
}

export async function sweepLedger(
  db: Database,
  retention: LedgerRetention,
  signal: AbortSignal,
): Promise<void> {
  const retention_us = retention.commands;
  await whileThereIsMore(signal, async () => {
    const removed = await remove(db, removeExpiredCommands, { retention_us, batch });
    return BigInt(removed) === batch;
  });
  await whileThereIsMore(signal, async () => {
    const asked = { retention_us: retention.deliveries, batch };
    const removed = await remove(db, removeSettledPublications, asked);
    return BigInt(removed) === batch;
  });
  await whileThereIsMore(signal, async () => {
    const asked = { retention_us: retention.changes, batch };
    const { expired } = await runAlone(db, "dispatcher", readExpiredPosition, asked);
    if (expired === null) return false;
    const moved = await remove(db, advanceFloor, { floor: expired });
    return moved === 1;
  });
  await whileThereIsMore(signal, async () => {
    const removed = await remove(db, removeChanges, { batch });
    return BigInt(removed) === batch;
  });
}

/** In a transition, so that a process of an older deployment removes nothing. */
function remove<P>(db: Database, statement: Statement<P, never, "exec">, params: P): Promise<number> {
  const scope = { role: "retention", tenant: null, name: "sweepLedger" } as const;
  return transition(db, scope, (tx) => tx.run(statement, params));
}

/** A batch at a time, with a breath between two. */
export async function whileThereIsMore(signal: AbortSignal, step: () => Promise<boolean>): Promise<void> {
  while (!signal.aborted && (await step())) {
    await delay(breathMs, undefined, { signal }).catch(() => undefined);
  }
}
