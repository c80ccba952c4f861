import { isHoldfastError } from "../core/errors.ts";
import { sqlstateOf } from "../core/postgres/sqlstate.ts";

/** Of the way to the database or its load, and of no item: locks and statements that ran out of time are, too. */
export function passes(error: unknown): boolean {
  return isHoldfastError(error, "unavailable") || timeouts.has(sqlstateOf(error) ?? "");
}
const timeouts: ReadonlySet<string> = new Set(["55P03", "57014", "25P04"]);
