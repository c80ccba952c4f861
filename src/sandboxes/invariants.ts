import { canonicalDigest } from "../core/canonical.ts";
import { type Invariant, invariant, type Violation } from "../core/invariant.ts";
import type { Transaction } from "../core/postgres/transition.ts";
import * as sql from "./invariants.sql.ts";

const fault = "This is a fault of Holdfast or a change from outside: report it with this output.";
const page = 500n;

/** What is always true of sandboxes and their output. */
export const sandboxInvariants: readonly Invariant[] = [
  invariant(sql.heldSandboxHasUid, {
    promises: ["E7"],
    next: "Look for the object by its name on the runtime, and report this output.",
  }),
  invariant(sql.uidIsOneSandboxes, { promises: ["E7"], next: fault }),
  invariant(sql.stepStartsOnce, {
    promises: ["G6"],
    next: "A step may have run twice: compare what both left behind.",
  }),
  invariant(sql.ownerHasOneAlive, {
    promises: ["E8"],
    next: "Two sandboxes may run at once: stop one on its runtime.",
  }),
  invariant(sql.sandboxTimesAscend, {
    promises: ["E8"],
    next: "Check that the database server's clock was not set back.",
  }),
  invariant(sql.stopIsProven, {
    promises: ["E8", "E10"],
    next: "Look whether the object still runs on its runtime.",
  }),
  invariant(sql.logIsWhole, {
    promises: ["E15", "E19"],
    next: "Some output is missing: report this output.",
  }),
  invariant(sql.outputIsKept, {
    promises: ["E19"],
    next: "Output was deleted before it was archived: look for its archive in the object store.",
  }),
  invariant(sql.logRetentionHolds, {
    promises: ["E19"],
    next: "Look whether a controller runs that reaches the object store.",
  }),
  {
    name: "sandboxSpecHasItsDigest",
    promises: ["E1"],
    of: "tenant",
    role: "operator",
    next: fault,
    find: specsWithOtherDigest,
  },
];

async function specsWithOtherDigest(tx: Transaction, limit: number): Promise<Violation[]> {
  const found: Violation[] = [];
  for (let after: string | null = null; found.length < limit; ) {
    const rows: sql.PageSandboxSpecsRow[] = await tx.run(sql.pageSandboxSpecs, { after, limit: page });
    for (const { name, spec, spec_digest } of rows) {
      // As sandboxSpecDigest computes it; the stored spec has its grace as text already.
      const digest = canonicalDigest({ schema: "holdfast.sandbox.v1", ...(spec as object) });
      if (digest !== spec_digest) {
        found.push({ resource: name, problem: `the digest of its spec is ${digest}, not ${spec_digest}` });
      }
    }
    const last = rows.at(-1);
    if (last === undefined || rows.length < page) break;
    after = last.sandbox_id;
  }
  return found.slice(0, limit);
}
