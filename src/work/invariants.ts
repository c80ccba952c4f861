import { type Invariant, invariant } from "../core/invariant.ts";
import * as sql from "./invariants.sql.ts";

const fault = "This is a fault of Holdfast or a change from outside: report it with this output.";

/** What is always true of Work. */
export const workInvariants: readonly Invariant[] = [
  invariant(sql.workIsLiveOrFinished, { promises: ["W5"], next: fault }),
  invariant(sql.workWaitsInItsLane, {
    promises: ["W2", "W7"],
    next: "No worker looks where it waits: suspend it, submit it again under another id, and report this output.",
  }),
  invariant(sql.workAttemptsAreOnRecord, { promises: ["W3", "W5"], next: fault }),
  invariant(sql.permitHasItsHolder, { promises: ["W5"], next: fault }),
  invariant(sql.historyAgreesWithItsAttempts, {
    promises: ["W6", "W11"],
    next: "Ask its provider what happened before anything is done again, and report this output.",
  }),
  invariant(sql.suspendedHasItsReason, { promises: ["W11"], next: fault }),
  invariant(sql.closureIsOfItsBound, { promises: ["W4", "W10"], next: fault }),
  invariant(sql.admittedInItsTime, {
    promises: ["W10"],
    next: "Look whether the database's clock was set back, and report this output.",
  }),
  invariant(sql.proofIsOfAnUnknown, { promises: ["W11"], next: fault }),
  invariant(sql.lateResultSettledNothing, { promises: ["W6"], next: fault }),
];
