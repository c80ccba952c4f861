import type { Transaction } from "../core/postgres/transition.ts";
import type { Microseconds } from "../core/time.ts";
import * as sql from "./log-archive.sql.ts";
import type { LogArchive, OutputState } from "./log-archive.ts";
import type { SandboxOwner } from "./sandbox.ts";

const of = ({ kind, id }: SandboxOwner) => ({ owner_kind: kind, owner: id });

export async function readOutputState(tx: Transaction, owner: SandboxOwner): Promise<OutputState> {
  const { chunks, archived } = await tx.run(sql.readOutputState, of(owner));
  if (!chunks) return "moved";
  return archived ? "archived" : "stored";
}

/** False: it is recorded already. */
export async function recordLogArchive(
  tx: Transaction,
  owner: SandboxOwner,
  archive: LogArchive & { readonly lines: bigint },
  retentionUs: Microseconds,
): Promise<boolean> {
  const { key, bytes, sha256, lines } = archive;
  const recorded = await tx.run(sql.recordLogArchive, {
    ...of(owner),
    blob_key: key,
    bytes,
    sha256,
    lines,
    archived_at: tx.now,
    retention_us: retentionUs,
  });
  return recorded === 1;
}

/** What is recorded of it, also when its bytes are gone. */
export async function readLogArchive(
  tx: Transaction,
  owner: SandboxOwner,
): Promise<sql.ReadLogArchiveRow | undefined> {
  return tx.run(sql.readLogArchive, of(owner));
}

/** False: it is marked already, or its retention has not ended. */
export async function markLogArchiveRemoved(tx: Transaction, owner: SandboxOwner): Promise<boolean> {
  return (await tx.run(sql.markLogArchiveRemoved, of(owner))) === 1;
}
