import { HoldfastError } from "../errors.ts";
import { inTransaction, isServerError, type SchemaSession } from "./session.ts";

/** Two clusters' worth of set-up at once loses such a race at most once each; more means something else. */
const triesMax = 5;
/** unique_violation, duplicate_object, and "tuple concurrently updated", which has no state of its own. */
const raceStates = new Set(["23505", "42710", "XX000"]);

/**
 * Run the role recipe (`migrations/roles.sql`): it changes nothing that is right already. Roles belong to the
 * whole cluster, where no lock of one database holds off another, so a lost race is run again.
 *
 * Throws `owner_required` when the session may not create roles.
 */
export async function applyRoles(session: SchemaSession, recipe: string): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      await inTransaction(session, () => session.query(recipe));
      return;
    } catch (error) {
      if (isServerError(error) && error.code === "42501") {
        throw new HoldfastError("owner_required", `the role recipe needs CREATEROLE: ${error.message}`, {
          cause: error,
        });
      }
      if (!isServerError(error) || !raceStates.has(error.code) || tries === triesMax) throw error;
    }
  }
}
