import type { IncarnationId } from "../core/ids.ts";
import type { Database } from "../core/postgres/transition.ts";
import { seconds } from "../core/time.ts";
import type { Verdict, WorkDefinition } from "./define.ts";
import { type Claimed, readUnknown, settleReconciled } from "./turn.store.ts";

/** Until a reconciler that could not tell, or failed, is asked again. */
const againAfter = seconds(30);

/** Asks the version's reconciler about the lost attempt, and settles what it says (W11). */
export async function reconcileOne(options: {
  readonly db: Database;
  readonly holder: IncarnationId;
  readonly work: WorkDefinition;
  readonly item: Claimed;
  readonly signal: AbortSignal;
}): Promise<string> {
  const { db, holder, work, item, signal } = options;
  const lost = await readUnknown(db, holder, item);
  if (lost === undefined) return "lost";
  let verdict: Verdict<unknown> = "unknown";
  let fault: unknown;
  try {
    verdict =
      (await work.reconcile?.(lost.input, {
        tenant: item.tenant,
        id: item.id,
        attempt: lost.attempt,
        providerKey: lost.provider_key,
        admittedAt: lost.permit_admitted_at,
        signal,
      })) ?? "unknown";
  } catch (error) {
    fault = error;
  }
  const state = await settleReconciled(db, holder, item, verdict, againAfter);
  if (fault !== undefined) throw fault;
  return state;
}
