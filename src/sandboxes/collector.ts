import { setTimeout as delay } from "node:timers/promises";
import type { Runtime, SandboxRef } from "../core/runtime.port.ts";
import { type LogChunk, logAssembler, readFrom } from "./log.ts";
import type { Sandbox } from "./sandbox.ts";

/** Stores what it is given under the owner's fence. False: somebody stored it already and moved on. */
export type StoreLog = (append: {
  readonly afterSeq: bigint;
  readonly position: string | null;
  readonly chunks: readonly LogChunk[];
  readonly truncated: boolean;
}) => Promise<boolean>;

const pendingBytesMax = 1_048_576;
/** Lines wait this long for others to be stored with them. */
const lineMs = 120;
/** An unfinished line is shown after this long: somebody may be waiting at a prompt. */
const partialMs = 1000;

/**
 * Read a sandbox's output from where it is stored to, make it safe, and store it. With `follow` it goes on
 * until the sandbox has stopped and all is read. Ends early only by the signal, or by what `store` throws: then
 * the stored position is where another goes on. Output beyond `bytesMax` is read and dropped, with one mark.
 */
export async function collectLog(
  runtime: Runtime,
  sandbox: Sandbox & { readonly uid: string },
  options: {
    readonly follow: boolean;
    readonly secrets: readonly string[];
    readonly bytesMax: bigint;
    readonly store: StoreLog;
  },
  outer: AbortSignal,
): Promise<void> {
  const failed = new AbortController();
  const signal = AbortSignal.any([outer, failed.signal]);
  const ref: SandboxRef = { name: sandbox.name, uid: sandbox.uid };
  const assembler = logAssembler({ secrets: options.secrets, position: sandbox.log.position });
  let { seq, bytes, truncated, position } = sandbox.log;
  let ended = false;
  let woken = () => {};
  let lastStored = Date.now();

  async function flush(all: "lines" | "partial" | "end"): Promise<void> {
    const taken = assembler.take(all);
    if (taken.position === position) return;
    const { chunks, size, cut } = fit(taken.chunks, truncated ? 0n : options.bytesMax - bytes);
    if (cut && !truncated) chunks.push(truncationMark(taken.chunks, options.bytesMax));
    const stored = await options.store({
      afterSeq: seq,
      position: taken.position,
      chunks,
      truncated: truncated || cut,
    });
    if (!stored) throw new Error(`the log of ${sandbox.name} is being stored by another`);
    seq += BigInt(chunks.length);
    bytes += size;
    truncated ||= cut;
    position = taken.position;
    lastStored = Date.now();
  }

  async function flushNowAndThen(): Promise<void> {
    while (!ended) {
      if (assembler.pending() === 0) {
        await new Promise<void>((resolve) => {
          woken = resolve;
        });
      }
      if (ended) return;
      await delay(lineMs, undefined, { signal });
      await flush(Date.now() - lastStored > partialMs ? "partial" : "lines");
    }
  }

  async function read(): Promise<void> {
    for await (const record of runtime.logs(
      ref,
      { cursor: readFrom(position), follow: options.follow },
      signal,
    )) {
      assembler.push(record);
      woken();
      // The flusher is late: what is pending stays bounded, and the reader waits for it.
      while (assembler.pending() > pendingBytesMax && !ended) await delay(10, undefined, { signal });
    }
  }

  const [reader, flusher] = await Promise.allSettled([
    read().finally(() => {
      ended = true;
      woken();
    }),
    flushNowAndThen().catch((error: unknown) => {
      ended = true;
      failed.abort(error);
      throw error;
    }),
  ]);
  if (flusher.status === "rejected") throw flusher.reason;
  if (reader.status === "rejected") throw reader.reason;
  await flush("end");
}

/** As many whole chunks as the bound has room for. */
function fit(
  chunks: readonly LogChunk[],
  room: bigint,
): { readonly chunks: LogChunk[]; readonly size: bigint; readonly cut: boolean } {
  const kept: LogChunk[] = [];
  let size = 0n;
  for (const chunk of chunks) {
    const length = BigInt(Buffer.byteLength(chunk.text));
    if (size + length > room) return { chunks: kept, size, cut: true };
    kept.push(chunk);
    size += length;
  }
  return { chunks: kept, size, cut: false };
}

function truncationMark(chunks: readonly LogChunk[], bytesMax: bigint): LogChunk {
  const at = chunks[0]?.at;
  if (at === undefined) throw new Error("nothing was cut");
  return { stream: "system", at, text: `[output beyond ${bytesMax} bytes is not kept]\n` };
}
