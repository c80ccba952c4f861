import type { BlobContent, BlobKey } from "../core/blob.port.ts";
import { HoldfastError } from "../core/errors.ts";
import type { Transaction } from "../core/postgres/transition.ts";
import type { Instant } from "../core/time.ts";
import * as sql from "./bundle-revision.sql.ts";

/** A committed revision, which never changes (S3). */
export interface BundleRevision {
  readonly session: string;
  readonly revision: bigint;
  /** Null: the session had no bundle then. */
  readonly bundle: (BlobContent & { readonly key: BlobKey }) | null;
  /** The activation that committed it, by its client's id; null for the beginning of a copy. */
  readonly activation: string | null;
  readonly from: { readonly session: string; readonly revision: bigint } | null;
  readonly committedAt: Instant;
  /** Its bytes went with its session. */
  readonly removedAt: Instant | null;
}

/** Newest first, before `before`. */
export async function listRevisions(
  tx: Transaction,
  session: string,
  page: { readonly before?: bigint; readonly limit: number },
): Promise<BundleRevision[]> {
  const { before = null, limit } = page;
  const rows = await tx.run(sql.listRevisions, { session, before, limit: BigInt(limit) });
  return rows.map(revisionOf);
}

export async function getRevision(
  tx: Transaction,
  session: string,
  revision: bigint,
): Promise<BundleRevision> {
  const row = await tx.run(sql.readRevision, { session, revision });
  if (row === undefined) throw new HoldfastError("not_found", "the session has no such revision");
  return revisionOf(row);
}

function revisionOf(row: sql.ListRevisionsRow): BundleRevision {
  const { blob_key: key, bytes, sha256, forked_session, forked_revision } = row;
  return {
    session: row.session_id,
    revision: row.revision,
    bundle: key === null || bytes === null || sha256 === null ? null : { key, bytes, sha256 },
    activation: row.activation_id,
    from:
      forked_session === null || forked_revision === null
        ? null
        : { session: forked_session, revision: forked_revision },
    committedAt: row.committed_at,
    removedAt: row.removed_at,
  };
}
