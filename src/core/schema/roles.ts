import { HoldfastError } from "../errors.ts";
import { sqlstateOf } from "../postgres/sqlstate.ts";
import { inTransaction, type SchemaSession } from "./session.ts";

/** Each loser of a race finds the roles there the next time. More tries than this mean something else. */
const triesMax = 5;
const insufficientPrivilege = "42501";
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
      const state = sqlstateOf(error) ?? "";
      if (state === insufficientPrivilege) {
        throw new HoldfastError(
          "owner_required",
          "the role recipe needs CREATEROLE and the database's owner",
          {
            cause: error,
          },
        );
      }
      if (!raceStates.has(state) || tries === triesMax) throw error;
    }
  }
}
