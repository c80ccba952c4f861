import { createHash } from "node:crypto";
import { pipeline, Readable } from "node:stream";
import { createGzip } from "node:zlib";
import type { BlobKey, BlobStore } from "../core/blob.port.ts";
import type { SandboxId, TenantId } from "../core/ids.ts";
import { type Database, view } from "../core/postgres/transition.ts";
import { readChunksAfter } from "./log.sql.ts";
import { archiveLine, type LogArchive, lineCount, type StoredChunk } from "./log-archive.ts";

/** One of the sandboxes whose output is archived, with its place among them. */
export interface ArchivedSandbox {
  readonly id: SandboxId;
  readonly step: number;
  readonly ordinal: number;
}

export interface Archiving {
  readonly db: Database;
  readonly blobs: Pick<BlobStore, "put">;
  readonly tenant: TenantId;
  readonly signal: AbortSignal;
}

/** At most 256 KiB each. */
const chunksAtOnce = 16n;

/**
 * Put the output of an owner that has ended into one blob (E19): compress once to learn length and digest, once more
 * to store it; its caller records it then. Nothing of it is ever whole in memory. Cut off anywhere, the next one does
 * it again; the digest in the key makes that the same object.
 */
export async function archiveOutput(
  archiving: Archiving,
  sandboxes: readonly ArchivedSandbox[],
  keyOf: (sha256: string) => BlobKey,
): Promise<LogArchive & { readonly lines: bigint }> {
  const { blobs, signal } = archiving;
  const hash = createHash("sha256");
  let bytes = 0n;
  let lines = 0n;
  const count = (chunk: StoredChunk) => {
    lines += BigInt(lineCount(chunk));
  };
  for await (const part of compressed(archiving, sandboxes, count) as AsyncIterable<Buffer>) {
    signal.throwIfAborted();
    hash.update(part);
    bytes += BigInt(part.length);
  }
  const content = { bytes, sha256: hash.digest("hex") };
  const key = keyOf(content.sha256);
  await blobs.put(key, content, compressed(archiving, sandboxes), signal);
  return { key, ...content, lines };
}

/** The same chunks give the same bytes. */
function compressed(
  archiving: Archiving,
  sandboxes: readonly ArchivedSandbox[],
  count: (chunk: StoredChunk) => void = () => undefined,
): Readable {
  const lines = Readable.from(archiveLines(archiving, sandboxes, count), { objectMode: false });
  return pipeline(lines, createGzip(), () => undefined);
}

async function* archiveLines(
  { db, tenant }: Archiving,
  sandboxes: readonly ArchivedSandbox[],
  count: (chunk: StoredChunk) => void,
): AsyncGenerator<string> {
  const scope = { role: "controller", tenant, name: "readSandboxChunks" } as const;
  for (const { id: sandbox, step, ordinal } of sandboxes) {
    const read = (after: bigint) =>
      view(db, scope, (tx) => tx.run(readChunksAfter, { sandbox, after, limit: chunksAtOnce }));
    for (let after: bigint | null = 0n; after !== null; ) {
      const chunks: StoredChunk[] = await read(after);
      for (const chunk of chunks) {
        count(chunk);
        yield archiveLine({ step, sandbox: ordinal, ...chunk });
      }
      // Nothing is added after the end: fewer than asked for are the last.
      after = chunks.length < Number(chunksAtOnce) ? null : (chunks.at(-1)?.seq ?? null);
    }
  }
}
