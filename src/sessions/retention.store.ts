import { insertLease } from "../core/lease.store.ts";
import type { Transaction } from "../core/postgres/transition.ts";
import { retentionKind } from "../sandboxes/retention.ts";

/** The lease that makes something of a session due for removal, by queue: bundles by session, output by activation. */
export const bundleQueue = "session-bundles";
export const outputQueue = "activation-output";

/** A deleted session's bundles go. Part of the transition in which its deletion is observed. */
export async function scheduleRemoval(tx: Transaction, session: string): Promise<void> {
  await insertLease(tx, { kind: retentionKind, queue: bundleQueue, resource: session, dueAt: tx.now });
}
