import type { BlobContent, BlobKey, BlobStore, Capability } from "../core/blob.port.ts";
import { HoldfastError } from "../core/errors.ts";
import { type Database, type Transaction, transition } from "../core/postgres/transition.ts";
import { type Instant, type Microseconds, microseconds } from "../core/time.ts";
import type { SandboxIdentity } from "../sandboxes/callback.ts";
import { assertSandboxReports, readSandboxOwner } from "../sandboxes/sandbox.sql.ts";
import * as sql from "./report.sql.ts";

/** What an agent begins a run with. */
export interface AgentInput {
  readonly session: string;
  /** The client's id of it. */
  readonly activation: string;
  /** Which activation of its session it is: 1, 2, 3 … */
  readonly ordinal: bigint;
  /** Which run of the activation: more than 1 after a failure or a required action. */
  readonly run: number;
  readonly stimulus: unknown;
  readonly permissions: readonly string[];
  /** The revision that the run began from; 0 in a session without any. */
  readonly revision: bigint;
  /** The capability to read exactly that revision's bundle; null while there is none. */
  readonly bundle: (Capability & BlobContent) | null;
}

export const candidateLimits = {
  /** Of one run: an agent that packs again and again is stopped somewhere. */
  candidatesMax: 4,
  bytesMax: 1_073_741_824n,
} as const;

interface Reporter extends sql.LockReportingRow {
  readonly uid: string;
  readonly deadline: Instant;
}

/**
 * A transition that an agent's sandbox asks for. Its fence is the sandbox itself: released, not stopping, not past
 * its deadline, checked with activation and sandbox locked. A controller's takeover refuses nothing here (E17).
 */
function reported<T>(
  db: Database,
  { tenant, sandbox }: SandboxIdentity,
  name: string,
  body: (tx: Transaction, reporter: Reporter) => Promise<T>,
): Promise<T> {
  return transition(db, { role: "controller", tenant, name }, async (tx) => {
    const owner = await tx.run(readSandboxOwner, { sandbox });
    if (owner?.owner_kind !== "activation") {
      throw new HoldfastError("sandbox_fenced", "there is no such sandbox");
    }
    const uid = owner.owner_id;
    const activation = await tx.run(sql.lockReporting, { activation: uid });
    if (activation?.state !== "running") {
      throw new HoldfastError("sandbox_fenced", "the activation is not running");
    }
    await tx.run(assertSandboxReports, { sandbox });
    return body(tx, { ...activation, uid, deadline: owner.deadline });
  });
}

/** Everything that a run begins with, and the right to read the bundle of the head: that object, and nothing else (E18). */
export async function readInput(
  db: Database,
  blobs: BlobStore,
  identity: SandboxIdentity,
): Promise<AgentInput> {
  const { reporter, base, limit } = await reported(db, identity, "readInput", async (tx, from) => {
    const { session_id: session, base_revision: revision, deadline } = from;
    const found = await tx.run(sql.readBase, { session, revision: revision ?? 0n });
    return { reporter: from, base: found, limit: lifetime(deadline, tx.now) };
  });
  return {
    session: reporter.session_id,
    activation: reporter.activation_id,
    ordinal: reporter.ordinal,
    run: reporter.tries,
    stimulus: reporter.content,
    permissions: reporter.permissions,
    revision: reporter.base_revision ?? 0n,
    bundle: base === undefined ? null : await grantBundle(blobs, base, limit),
  };
}

async function grantBundle(
  blobs: BlobStore,
  { blob_key, bytes, sha256 }: sql.ReadBaseRow,
  limit: Microseconds,
): Promise<AgentInput["bundle"]> {
  if (blob_key === null || bytes === null || sha256 === null) return null;
  const content = { bytes, sha256 };
  return { ...(await blobs.grantDownload(blob_key, content, limit)), ...content };
}

/**
 * A promise of one candidate bundle with its length and digest, and the capability to send exactly that. The same
 * promise again gives the same candidate. It becomes a revision only when the outcome names it, its bytes are
 * verified, and the checkpoint is committed (S13).
 */
export async function promiseCandidate(
  db: Database,
  blobs: BlobStore,
  identity: SandboxIdentity,
  content: BlobContent,
): Promise<Capability> {
  if (content.bytes < 1n || content.bytes > candidateLimits.bytesMax) {
    throw new HoldfastError("payload_too_large", `a bundle has 1 to ${candidateLimits.bytesMax} bytes`);
  }
  const granted = await reported(db, identity, "promiseCandidate", async (tx, reporter) => {
    const candidate = { activation: reporter.uid, sandbox: identity.sandbox, sha256: content.sha256 };
    const limit = lifetime(reporter.deadline, tx.now);
    const promised = await tx.run(sql.readCandidate, candidate);
    if (promised !== undefined) {
      if (promised.bytes === content.bytes) return { key: promised.blob_key, limit };
      throw new HoldfastError("conflict", "the candidate was promised with another length");
    }
    const { count } = await tx.run(sql.countCandidates, candidate);
    if (count >= candidateLimits.candidatesMax) {
      throw new HoldfastError("conflict", `a run has at most ${candidateLimits.candidatesMax} candidates`);
    }
    const key = candidateKey(identity, reporter, content.sha256);
    await tx.run(sql.insertCandidate, { ...candidate, bytes: content.bytes, blob_key: key });
    return { key, limit };
  });
  return blobs.grantUpload(granted.key, content, granted.limit);
}

/** Its owner stands in the key, and no two runs share one: removing what was lost never takes what was committed. */
function candidateKey(identity: SandboxIdentity, reporter: Reporter, sha256: string): BlobKey {
  const { tenant, sandbox } = identity;
  return `${tenant}/sessions/${reporter.session_id}/${reporter.uid}/${sandbox}/${sha256}.tar.zst`;
}

const lifetimeMax = microseconds(15n * 60_000_000n);

/** A capability never outlives the deadline of whoever asked for it. */
function lifetime(deadline: Instant, now: Instant): Microseconds {
  const left = deadline - now;
  return microseconds(left < lifetimeMax ? left : lifetimeMax);
}
