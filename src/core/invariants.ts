import { type Invariant, invariant } from "./invariant.ts";
import * as sql from "./invariants.sql.ts";

const installation = { of: "installation", role: "dispatcher" } as const;
const fault = "This is a fault of Holdfast or a change from outside: report it with this output.";

/** What is always true of leases, changes, the outbox and commands. */
export const kernelInvariants: readonly Invariant[] = [
  invariant(sql.freeLeaseWakesWhenDue, { ...installation, promises: ["E5"], next: fault }),
  invariant(sql.leaseEpochWasDrawn, {
    ...installation,
    promises: ["E5", "G5"],
    next: "A restore left the sequence behind: stop all processes and set holdfast.lease_epochs above every epoch.",
  }),
  invariant(sql.leaseEpochIsOneClaims, { ...installation, promises: ["E5", "G5"], next: fault }),
  invariant(sql.positionsHaveNoGap, {
    ...installation,
    promises: ["S14"],
    next: "Watchers may have missed changes: have them list again, and report this output.",
  }),
  invariant(sql.versionsAscend, { promises: ["S6", "S14"], next: fault }),
  invariant(sql.changesAreStamped, {
    promises: ["S14"],
    next: "No process stamps positions: start a gateway or controller, and look into its log.",
  }),
  invariant(sql.pendingPublicationHasLease, {
    promises: ["S8"],
    next: "Redeliver the publication, and report this output.",
  }),
  invariant(sql.commandsAreAnswered, { promises: ["G3"], next: fault }),
];
