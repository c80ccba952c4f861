import { createHash } from "node:crypto";
import { pipeline, Readable } from "node:stream";
import { createGzip } from "node:zlib";
import { archiveLine, type StoredChunk } from "../sandboxes/log-archive.ts";
import { deleteLogChunks, readSandboxChunks, recordLogArchive } from "./archive-log.store.ts";
import type { AttemptSnapshot } from "./attempt.ts";
import type { Attendance } from "./context.ts";
import { lineCount } from "./job-log.ts";

/** What it takes to archive under a lease. */
export interface Archiving extends Pick<Attendance, "lease" | "signal"> {
  readonly context: Pick<Attendance["context"], "db" | "blobs"> & {
    readonly settings: Pick<Attendance["context"]["settings"], "logRetention">;
  };
}

/** At most 256 KiB each. */
const chunksAtOnce = 16;

/**
 * Archive the output of an attempt that has ended (E19): compress once to learn length and digest, once more to
 * store it, then record it under the lease. Nothing of it is ever whole in memory. Cut off anywhere, the next
 * one does it again; the digest in the key makes that the same object.
 */
export async function archiveLog(archiving: Archiving, view: AttemptSnapshot): Promise<void> {
  const { context, lease, signal } = archiving;
  const hash = createHash("sha256");
  let bytes = 0n;
  let lines = 0n;
  const count = (chunk: StoredChunk) => {
    lines += BigInt(lineCount(chunk));
  };
  for await (const part of compressed(archiving, view, count) as AsyncIterable<Buffer>) {
    signal.throwIfAborted();
    hash.update(part);
    bytes += BigInt(part.length);
  }
  const content = { bytes, sha256: hash.digest("hex") };
  const { tenant, job, ordinal } = view;
  const key = `${tenant}/jobs/${job}/${ordinal}/log/${content.sha256}.jsonl.gz`;
  await context.blobs.put(key, content, compressed(archiving, view), signal);
  const archive = { key, ...content, lines };
  await recordLogArchive(context.db, lease, archive, context.settings.logRetention);
}

/** The chunks are in the archive, where readers find them from now on: they can go. */
export async function trimLog({ context, lease, signal }: Archiving, view: AttemptSnapshot): Promise<void> {
  for (const sandbox of view.sandboxes) {
    signal.throwIfAborted();
    if (sandbox.log.seq > 0n) await deleteLogChunks(context.db, lease, sandbox.id);
  }
}

/** The same chunks give the same bytes. */
function compressed(
  archiving: Archiving,
  view: AttemptSnapshot,
  count: (chunk: StoredChunk) => void = () => undefined,
): Readable {
  const lines = Readable.from(archiveLines(archiving, view, count), { objectMode: false });
  return pipeline(lines, createGzip(), () => undefined);
}

/** In reading order: that of phases and their sandboxes. */
async function* archiveLines(
  { context, lease }: Archiving,
  view: AttemptSnapshot,
  count: (chunk: StoredChunk) => void,
): AsyncGenerator<string> {
  for (const phase of view.phases) {
    const own = view.sandboxes.filter((sandbox) => sandbox.step === phase.name);
    for (const sandbox of own.toSorted((a, b) => a.ordinal - b.ordinal)) {
      const read = (from: bigint) => readSandboxChunks(context.db, lease, sandbox.id, from, chunksAtOnce);
      for (
        let chunks = await read(1n);
        chunks.length > 0;
        chunks = await read((chunks.at(-1)?.seq ?? 0n) + 1n)
      ) {
        for (const chunk of chunks) {
          count(chunk);
          yield archiveLine({ step: phase.number, sandbox: sandbox.ordinal, ...chunk });
        }
      }
    }
  }
}
