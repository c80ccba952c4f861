import { digestsOf, type Invariant, invariant } from "../core/invariant.ts";
import * as sql from "./invariants.sql.ts";

const fault = "This is a fault of Holdfast or a change from outside: report it with this output.";
const attend = "Start a controller that has the runtime, and look into its log for the attempt.";

/** What is always true of slots: a slot is held exactly by an active attempt (E2). */
const slotInvariants: readonly Invariant[] = [
  invariant(sql.slotIsAnActiveAttempts, { promises: ["E2", "E10"], next: fault }),
  invariant(sql.attemptHasOneSlot, { of: "installation", promises: ["E2"], next: fault }),
  invariant(sql.slotHolderExists, { of: "installation", promises: ["E2"], next: fault }),
];

const jobInvariants: readonly Invariant[] = [
  invariant(sql.ordinalsHaveNoGap, { promises: ["E4"], next: fault }),
  invariant(sql.attemptsFollowEachOther, { promises: ["E4", "E12"], next: fault }),
  invariant(sql.jobAgreesWithAttempts, { promises: ["E10", "E12"], next: fault }),
  invariant(sql.oneOfCancellationAndSuccess, { promises: ["E10", "G8"], next: fault }),
  invariant(sql.enrolledIsNotClaimed, {
    promises: ["E13"],
    next: "Stop the direct claimant on the host that it names: the job may run twice.",
  }),
  invariant(sql.leaseHasItsResource, { promises: ["G2"], next: fault }),
  invariant(sql.waitingKeepsItsPlace, { promises: ["E2"], next: fault }),
  invariant(sql.versionsAreInTheLog, { promises: ["S6"], next: fault }),
];

const attemptInvariants: readonly Invariant[] = [
  invariant(sql.deadlineHolds, { promises: ["E4"], next: attend }),
  invariant(sql.phasesFollowThePlan, { promises: ["E1", "E8"], next: fault }),
  invariant(sql.phaseWaitsForTheOneBefore, { promises: ["E8"], next: fault }),
  invariant(sql.sandboxHasItsPhase, { promises: ["E8"], next: fault }),
  invariant(sql.successWasRun, { promises: ["E8", "E10"], next: fault }),
  invariant(sql.pinsCameBefore, { promises: ["E9"], next: fault }),
  invariant(sql.pinIsOfASource, { promises: ["E9", "E17"], next: fault }),
  invariant(sql.endIsProven, {
    promises: ["E10"],
    next: "Look whether the object still runs on its runtime.",
  }),
  invariant(sql.cleanedLeavesNothing, {
    promises: ["E14"],
    next: "Remove by hand what is named, by its name and UID, and report this output.",
  }),
  invariant(sql.cleaningIsNotLate, { promises: ["E14"], next: attend }),
  digestsOf({ name: "planHasItsDigest", promises: ["E1", "E3"], next: fault }, async (tx, after, page) =>
    (await tx.run(sql.pagePlans, { after, limit: page })).map((row) => ({
      key: row.attempt_id,
      resource: `${row.job_id}/${String(row.ordinal)}`,
      value: row.plan,
      digest: row.plan_digest,
    })),
  ),
  digestsOf({ name: "specHasItsDigest", promises: ["E1", "E13"], next: fault }, async (tx, after, page) =>
    (await tx.run(sql.pageSpecs, { after, limit: page })).map((row) => ({
      key: row.spec_digest,
      resource: row.spec_digest,
      value: row.spec,
      digest: row.spec_digest,
    })),
  ),
];

const artifactInvariants: readonly Invariant[] = [
  invariant(sql.artifactIsASuccessfulJobs, { promises: ["E10", "E20"], next: fault }),
  invariant(sql.artifactIsAStoredObject, {
    promises: ["E20"],
    next: "Look whether the store still has the object: a download may fail.",
  }),
  invariant(sql.retentionHolds, {
    promises: ["E11", "E20"],
    next: "Start a controller, and look into its log: the store may refuse the deletion.",
  }),
];

/** What is always true of jobs, attempts, phases and artifacts. */
export const executionInvariants: readonly Invariant[] = [
  ...slotInvariants,
  ...jobInvariants,
  ...attemptInvariants,
  ...artifactInvariants,
];
