import { setTimeout as delay } from "node:timers/promises";
import type { Runtime, SandboxRef } from "../core/runtime.port.ts";
import { type LogChunk, logAssembler, readFrom } from "./log.ts";
import { fitLog, type LogRoom } from "./log-room.ts";
import type { Sandbox } from "./sandbox.ts";

/** Stores what it is given under the owner's fence. False: somebody stored it already and moved on. */
export type StoreLog = (append: {
  readonly afterSeq: bigint;
  readonly position: string | null;
  readonly chunks: readonly LogChunk[];
  readonly truncated: boolean;
}) => Promise<boolean>;

/** The reader waits when so much is waiting to be stored, which bounds the memory of a collector. */
const pendingBytesMax = 1_048_576;
/** So much is worth a transaction of its own: no waiting for more. */
const enoughBytes = 262_144;
/** Lines wait this long for others to be stored with them. */
const lineMs = 120;
/** An unfinished line is shown after this long: somebody may be waiting at a prompt. */
const partialMs = 1000;

/**
 * Read a sandbox's output from where it is stored to, make it safe, and store it. With `follow` it goes on
 * until the sandbox has stopped and all is read. Ends early only by the signal, or by what `store` throws: then
 * the stored position is where another goes on. What is beyond the owner's room is not read: one mark says so.
 */
export async function collectLog(
  runtime: Runtime,
  sandbox: Sandbox & { readonly uid: string },
  options: {
    readonly follow: boolean;
    readonly secrets: readonly string[];
    readonly room: LogRoom;
    readonly store: StoreLog;
  },
  outer: AbortSignal,
): Promise<void> {
  let { seq, truncated, position } = sandbox.log;
  if (truncated) return;
  const over = new AbortController();
  const signal = AbortSignal.any([outer, over.signal]);
  const ref: SandboxRef = { name: sandbox.name, uid: sandbox.uid };
  const assembler = logAssembler({ secrets: options.secrets, position });
  let bytes = options.room.bytes;
  let ended = false;
  let lastStored = Date.now();
  /** Each waits for the other: the flusher for bytes, the reader for room. */
  const filled = condition();
  const emptied = condition();

  async function flush(all: "lines" | "partial" | "end"): Promise<void> {
    const taken = assembler.take(all);
    if (taken.position === position) return;
    const { chunks, size, cut } = fitLog(taken.chunks, { ...options.room, bytes });
    const stored = await options.store({
      afterSeq: seq,
      position: taken.position,
      chunks,
      truncated: cut,
    });
    if (!stored) throw new Error(`the log of ${sandbox.name} is being stored by another`);
    seq += BigInt(chunks.length);
    bytes -= size;
    truncated = cut;
    position = taken.position;
    lastStored = Date.now();
  }

  async function flushNowAndThen(): Promise<void> {
    while (!ended && !truncated) {
      await filled.until(() => ended || assembler.pending() > 0);
      if (ended) return;
      await pause(lineMs, () => ended || assembler.pending() >= enoughBytes);
      signal.throwIfAborted();
      await flush(Date.now() - lastStored > partialMs ? "partial" : "lines");
      emptied.changed();
    }
  }

  async function pause(ms: number, enough: () => boolean): Promise<void> {
    const awake = new AbortController();
    const timer = delay(ms, undefined, { signal: AbortSignal.any([signal, awake.signal]) });
    await Promise.race([timer, filled.until(() => enough() || awake.signal.aborted)]).finally(() => {
      awake.abort();
      filled.changed();
    });
    await timer.catch(() => undefined);
  }

  async function read(): Promise<void> {
    const records = runtime.logs(ref, { cursor: readFrom(position), follow: options.follow }, signal);
    for await (const record of records) {
      assembler.push(record);
      filled.changed();
      if (assembler.pending() > pendingBytesMax) {
        await emptied.until(() => signal.aborted || assembler.pending() <= pendingBytesMax);
      }
      signal.throwIfAborted();
    }
  }

  const [reader, flusher] = await Promise.allSettled([
    read().finally(() => {
      ended = true;
      filled.changed();
    }),
    flushNowAndThen().finally(() => {
      // Cut off or failed: nothing more is read.
      if (!ended) over.abort(new Error("nothing more of it is stored"));
      emptied.changed();
    }),
  ]);
  if (flusher.status === "rejected") throw flusher.reason;
  outer.throwIfAborted();
  if (truncated) return;
  if (reader.status === "rejected") throw reader.reason;
  await flush("end");
}

interface Condition {
  /** Resolves when the check holds, which is looked at now and after each change. */
  until(check: () => boolean): Promise<void>;
  changed(): void;
}

/** A change that nobody waits for costs nothing: there is one for every record. */
function condition(): Condition {
  let waiting: { readonly check: () => boolean; readonly wake: () => void }[] = [];
  return {
    until: (check) =>
      check()
        ? Promise.resolve()
        : new Promise((wake) => {
            waiting.push({ check, wake });
          }),
    changed() {
      for (const { wake } of waiting.filter(({ check }) => check())) wake();
      waiting = waiting.filter(({ check }) => !check());
    },
  };
}
