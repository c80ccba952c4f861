import { readJson } from "../http/json.ts";
import { defaultLimits } from "../http/limits.ts";
import { UsageError } from "./failures.ts";

/**
 * Reads what somebody wrote as strictly as the server would, who only sees what was made of it: two members of one
 * name, or a number that would be rounded, are mistakes here too. `what` begins the refusal.
 */
export function strictJson(text: string, what: string): unknown {
  try {
    return readJson(new TextEncoder().encode(text), { depth: defaultLimits.jsonDepth });
  } catch (error) {
    throw new UsageError(`${what}: ${error instanceof Error ? error.message : String(error)}`);
  }
}
