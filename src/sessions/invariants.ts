import { digestsOf, type Invariant, invariant } from "../core/invariant.ts";
import * as sql from "./invariants.sql.ts";

const fault = "This is a fault of Holdfast or a change from outside: report it with this output.";
const attend = "Start a controller that has the runtime, and look into its log for the session.";

/** What is always true of agents, sessions, activations and bundles. */
export const sessionInvariants: readonly Invariant[] = [
  invariant(sql.headIsTheLastRevision, { promises: ["S3", "S7"], next: fault }),
  invariant(sql.revisionHasItsCheckpoint, { promises: ["S7"], next: fault }),
  invariant(sql.revisionIsWhatWasVerified, { promises: ["S13"], next: fault }),
  invariant(sql.replyIsACommittedOnes, { promises: ["S7", "S8"], next: fault }),
  invariant(sql.activationsGoInOrder, { promises: ["S2", "S7"], next: fault }),
  invariant(sql.workBeganFromTheHead, { promises: ["S7"], next: fault }),
  invariant(sql.onlyARunHasSandboxes, {
    promises: ["S11"],
    next: "Look whether the object still runs on its runtime.",
  }),
  invariant(sql.workHasItsLease, { promises: ["S4", "S12"], next: fault }),
  invariant(sql.leaseHasItsSession, { promises: ["S4"], next: fault }),
  invariant(sql.cleanedActivationLeavesNothing, {
    promises: ["S13"],
    next: "Remove by hand what is named, by its name and UID, and report this output.",
  }),
  invariant(sql.activationIsCleanedInTime, { promises: ["S13"], next: attend }),
  invariant(sql.bundleGoesWithItsSession, { promises: ["S13"], next: fault }),
  invariant(sql.sessionVersionsAreInTheLog, { promises: ["S6"], next: fault }),
  digestsOf({ name: "templateHasItsDigest", promises: ["G10"], next: fault }, async (tx, after, limit) =>
    (await tx.run(sql.pageTemplates, { after, limit })).map(({ key, template, template_digest }) => ({
      key,
      resource: key,
      value: template,
      digest: template_digest,
    })),
  ),
  digestsOf({ name: "stimulusHasItsDigest", promises: ["S2"], next: fault }, async (tx, after, limit) =>
    (await tx.run(sql.pageStimuli, { after, limit })).map((row) => ({
      key: row.activation_uid,
      resource: `${row.session_id}/${row.activation_id}`,
      value: row.content,
      digest: row.content_digest,
    })),
  ),
];
