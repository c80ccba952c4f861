import type { BlobContent, BlobKey } from "../core/blob.port.ts";
import { underLease } from "../core/lease.store.ts";
import type { HeldLease } from "../core/lease.ts";
import { type Database, transition, view } from "../core/postgres/transition.ts";
import * as sql from "./run.sql.ts";
import { giveRoom, recordEvent } from "./run.store.ts";

export interface Commit {
  /** The activation's own id. */
  readonly uid: string;
  /** The revision that the run began from: the head has to be there still. */
  readonly expectedHead: bigint;
  /** Where the reply goes; none: the built-in inbox. */
  readonly destinations: readonly string[];
}

/**
 * The checkpoint: all six of it in one exchange of one transaction, or nothing (S7). Of any number that compete for
 * one head, one moves it; the others are `conflict`, or `fenced` when another holds the session's lease. The same
 * commit again under the same lease gives the same revision.
 */
export function commitCheckpoint(db: Database, lease: HeldLease, commit: Commit): Promise<bigint> {
  const scope = { role: "controller", tenant: lease.tenant, name: "commitCheckpoint" } as const;
  return transition(db, scope, async (tx) => {
    const { revision } = await tx.run(sql.commitCheckpoint, {
      session: lease.resource,
      uid: commit.uid,
      holder: lease.holder,
      epoch: lease.epoch,
      expected_head: commit.expectedHead,
      destinations: [...commit.destinations],
    });
    await giveRoom(tx);
    return revision;
  });
}

export interface Candidate extends BlobContent {
  readonly key: BlobKey;
  readonly sandbox: string;
  readonly verified: boolean;
}

/** The candidate that the outcome named; undefined when its sandbox never promised it. */
export function readProposedCandidate(
  db: Database,
  lease: HeldLease,
  uid: string,
): Promise<Candidate | undefined> {
  const scope = { role: "controller", tenant: lease.tenant, name: "readProposedCandidate" } as const;
  return view(db, scope, async (tx) => {
    const row = await tx.run(sql.readProposedCandidate, { uid });
    if (row === undefined) return undefined;
    const { sandbox_id: sandbox, blob_key: key, bytes, sha256, verified } = row;
    return { sandbox, key, bytes, sha256, verified };
  });
}

/** The store has its bytes with the promised length and digest: looked at outside any transaction (S10, S13). */
export function recordVerified(
  db: Database,
  lease: HeldLease,
  uid: string,
  { sandbox, sha256, bytes }: Candidate,
): Promise<void> {
  return underLease(db, lease, "verifyCandidate", async (tx) => {
    await tx.run(sql.lockRun, { uid });
    if ((await tx.run(sql.verifyCandidate, { uid, sandbox, sha256 })) === 1) {
      await recordEvent(tx, uid, "candidate.verified", { sha256, bytes: Number(bytes) });
    }
  });
}
