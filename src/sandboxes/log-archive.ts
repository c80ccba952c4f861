import { pipeline, type Readable } from "node:stream";
import { StringDecoder } from "node:string_decoder";
import { createGunzip } from "node:zlib";
import type { BlobContent, BlobKey, BlobStore } from "../core/blob.port.ts";
import { formatInstant, type Instant, parseInstant } from "../core/time.ts";

/** Where an ended owner's output is: in chunks only, in chunks and in an archive, or in no chunks (E19). */
export type OutputState = "stored" | "archived" | "moved";

/** The whole output of a sandbox's owner in one blob: gzipped JSON lines, one a stored chunk, in reading order. */
export interface LogArchive extends BlobContent {
  readonly key: BlobKey;
}

/** Output as it was stored, and where in its sandbox's output it stands. */
export interface StoredChunk {
  readonly seq: bigint;
  readonly stream: string;
  readonly at: Instant;
  readonly body: string;
}

/** Its lines, without their ends. */
export function textsOf({ body }: Pick<StoredChunk, "body">): string[] {
  const texts = body.split("\n");
  if (texts.at(-1) === "") texts.pop();
  return texts;
}

export const lineCount = (chunk: Pick<StoredChunk, "body">): number => textsOf(chunk).length;

/** A chunk with its place among the steps of its owner. */
export interface ArchivedChunk extends StoredChunk {
  readonly step: number;
  readonly sandbox: number;
}

export function archiveLine({ step, sandbox, seq, stream, at, body }: ArchivedChunk): string {
  return `${JSON.stringify({ step, sandbox, seq: Number(seq), stream, at: formatInstant(at), text: body })}\n`;
}

/** What `archiveLine` wrote: the blob's digest is the recorded one, or reading it fails. */
function archivedChunk(line: string): ArchivedChunk {
  const { step, sandbox, seq, stream, at, text } = JSON.parse(line) as Readonly<Record<string, unknown>>;
  if (typeof step !== "number" || typeof sandbox !== "number" || typeof seq !== "number") {
    throw new TypeError("a line of the archive has no place");
  }
  return {
    step,
    sandbox,
    seq: BigInt(seq),
    stream: String(stream),
    at: parseInstant(String(at)),
    body: String(text),
  };
}

/** The chunks of an archive, in reading order. Refuses with `absent`; fails at the end when it isn't what was recorded. */
export async function openLogArchive(
  blobs: Pick<BlobStore, "read">,
  archive: LogArchive,
  signal: AbortSignal,
): Promise<AsyncGenerator<ArchivedChunk, void>> {
  return archivedChunks(await blobs.read(archive.key, archive, signal));
}

async function* archivedChunks(bytes: Readable): AsyncGenerator<ArchivedChunk, void> {
  const decoder = new StringDecoder("utf8");
  let rest = "";
  // Whoever stops reading ends both streams.
  for await (const part of pipeline(bytes, createGunzip(), () => undefined)) {
    const lines = (rest + decoder.write(part as Buffer)).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) yield archivedChunk(line);
  }
}
