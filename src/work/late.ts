import { isHoldfastError } from "../core/errors.ts";
import type { EngineOptions } from "./engine-options.ts";
import { type Done, type Outcome, observeWork } from "./turn.store.ts";

/**
 * Keeps what came too late, and says what became of it. `held`: nothing yet, as it is not late after all, or nobody
 * answered.
 */
export async function keepLate(
  options: Pick<EngineOptions, "db" | "holder" | "retention" | "onError">,
  one: Done,
): Promise<string> {
  try {
    return await observeWork(options.db, options.holder, one, options.retention);
  } catch (error) {
    options.onError(error, "a late result could not be kept");
    if (isHoldfastError(error, "unavailable")) return "held";
    // That it was late is worth keeping, also where its result can't be.
    if (one.outcome.type === "succeeded" && one.outcome.result !== "")
      return keepLate(options, { ...one, outcome: { type: "succeeded", result: "" } });
    return "dropped";
  }
}

/** It must not be settled as a failure: whether the effect has happened is for others to say. */
export const isUnknown = (outcome: Outcome) => outcome.type === "failed" && outcome.unknown === true;
