import { HoldfastError, isHoldfastError } from "../core/errors.ts";
import type { IncarnationId } from "../core/ids.ts";
import { constraintOf } from "../core/postgres/sqlstate.ts";
import type { Database } from "../core/postgres/transition.ts";
import { seconds } from "../core/time.ts";
import type { Verdict, WorkDefinition } from "./define.ts";
import { type Claimed, readUnknown, settleReconciled } from "./turn.store.ts";
import { kept } from "./value.ts";

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
    verdict = checked(
      await work.reconcile?.(lost.input, {
        tenant: item.tenant,
        id: item.id,
        attempt: lost.attempt,
        providerKey: lost.provider_key,
        admittedAt: lost.permit_admitted_at,
        signal,
      }),
    );
  } catch (error) {
    fault = error;
  }
  const settle = (said: Verdict<unknown>) => settleReconciled(db, holder, item, said, againAfter);
  let state: string;
  try {
    state = await settle(storable(verdict));
  } catch (error) {
    if (!isResult(error)) throw error;
    // What is proven is settled: that its result can't be stored takes nothing from it.
    fault = error;
    state = await settle({ applied: true });
  }
  if (fault !== undefined) throw fault;
  return state;
}

/** Also of a program without types: what is no verdict must not be read as "nothing has happened". */
function checked(said: unknown): Verdict<unknown> {
  if (said === undefined || said === "unknown") return "unknown";
  if (typeof said !== "object" || said === null || !("applied" in said) || typeof said.applied !== "boolean")
    throw new HoldfastError("invalid_request", 'a reconciler gives { applied: true or false }, or "unknown"');
  if (!said.applied) return { applied: false };
  return "result" in said ? { applied: true, result: said.result } : { applied: true };
}

function storable(verdict: Verdict<unknown>): Verdict<unknown> {
  if (verdict === "unknown" || !verdict.applied || verdict.result === undefined) return verdict;
  return { applied: true, result: kept(verdict.result, ["result"]) };
}

/** Refused here, or by the database, which may need more for it than its text is long. */
function isResult(error: unknown): boolean {
  if (isHoldfastError(error, "invalid_request")) return true;
  return constraintOf(isHoldfastError(error) ? error.cause : error) === "work_history_result";
}
