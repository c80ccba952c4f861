import type { SandboxId } from "../core/ids.ts";
import type { Transaction } from "../core/postgres/transition.ts";
import * as sql from "./log.sql.ts";
import type { LogChunk } from "./log.ts";
import type { LogRoom } from "./log-room.ts";
import type { LogProgress } from "./sandbox.ts";

/**
 * Append output under the owner's fence. Replaying the same append changes nothing (E15): the chunks are there
 * already, and the sandbox has moved past `afterSeq`. False when it had.
 */
export async function appendProgress(
  tx: Transaction,
  sandbox: SandboxId,
  append: {
    readonly afterSeq: bigint;
    readonly position: string | null;
    readonly chunks: readonly LogChunk[];
    readonly truncated: boolean;
  },
): Promise<boolean> {
  const advanced = await tx.run(sql.advanceLog, {
    sandbox,
    position: append.position,
    after_seq: append.afterSeq,
    chunks: BigInt(append.chunks.length),
    bytes: append.chunks.reduce((sum, chunk) => sum + BigInt(Buffer.byteLength(chunk.text)), 0n),
    truncated: append.truncated,
  });
  if (advanced === 0) return false;
  if (append.chunks.length > 0) {
    await tx.run(sql.insertLogChunks, {
      sandbox,
      after_seq: append.afterSeq,
      streams: append.chunks.map((chunk) => chunk.stream),
      ats: append.chunks.map((chunk) => chunk.at),
      bodies: append.chunks.map((chunk) => chunk.text),
    });
  }
  return true;
}

export async function readLogProgress(tx: Transaction, sandbox: SandboxId): Promise<LogProgress> {
  const row = await tx.run(sql.readLogProgress, { sandbox });
  return {
    position: row.log_cursor,
    seq: row.log_seq,
    bytes: row.log_bytes,
    truncated: row.truncated,
    settled: row.settled,
  };
}

/** What the owner of a sandbox may still store, of `bytesMax` for all its sandboxes together. */
export async function readLogRoom(tx: Transaction, sandbox: SandboxId, bytesMax: bigint): Promise<LogRoom> {
  const { bytes, truncated } = await tx.run(sql.readLogRoom, { sandbox });
  return { bytes: bytesMax - bytes, bytesMax, marked: truncated };
}

/** All that the sandbox wrote is stored (up to the bound). */
export async function completeLog(tx: Transaction, sandbox: SandboxId): Promise<void> {
  await tx.run(sql.completeLog, { sandbox });
}

/** Some of it can't be had any more: recorded, so that its owner may end (E10). */
export async function loseLog(tx: Transaction, sandbox: SandboxId, reason: string): Promise<void> {
  await tx.run(sql.loseLog, { sandbox, reason: reason.slice(0, 1000) });
}
