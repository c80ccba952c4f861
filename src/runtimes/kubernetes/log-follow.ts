import { setTimeout as delay } from "node:timers/promises";
import { type LogRecord, RuntimeRefusal, type SandboxRef } from "../../core/runtime.port.ts";
import { ApiError, isApiError } from "./api-error.ts";
import { type LogCursor, readCursor } from "./log-cursor.ts";
import { gapAfter, type LogReading, readLogBody } from "./log-read.ts";
import type { Pod } from "./pod.ts";
import type { PodApi } from "./pod-api.ts";
import { mainContainer } from "./pod-marks.ts";
import { everHadContainer, proofOf } from "./proof.ts";

export interface LogSource {
  readonly api: PodApi;
  readonly ref: SandboxRef;
  readonly bytesMax: number;
  /** Refuses with `gone` or `wrong_uid`. */
  readonly look: () => Promise<Pod>;
  readonly changed: () => Promise<void>;
}

/** An idle follow is opened again after this: a dead connection looks the same. */
const silenceMs = 60_000;
const pauseMs = 250;
const failuresMax = 5;

/**
 * The log from `cursor`. With `follow`, until the proof that the container has ended and a last read after it.
 * The end of a follow proves nothing: it ends alike when the container ends and when its node dies, and is cut
 * off when the API server dies. So the pod is looked at before each read, and what is read after the proof is
 * all there will be.
 */
export async function* followLog(
  source: LogSource,
  options: { readonly cursor: string | null; readonly follow: boolean },
  signal: AbortSignal,
): AsyncGenerator<LogRecord, void> {
  let cursor = readCursor(options.cursor, source.ref.uid);
  for (let failures = 0; ; ) {
    signal.throwIfAborted();
    const pod = await source.look();
    const final = proofOf(pod).stopped;
    if (cursor?.state === "end" || (final && !everHadContainer(pod))) return;
    const reading = yield* readOnce(source, cursor, { final, follow: options.follow && !final }, signal);
    if (reading.cursor !== cursor) failures = 0;
    cursor = reading.cursor;
    switch (reading.ended) {
      case "over":
        return;
      case "missing":
        if (cursor !== null) {
          const gap = gapAfter(source.ref.uid, cursor);
          cursor = gap.cursor;
          yield gap.said;
        }
        continue;
      case "clean":
        if (final || !options.follow) return;
        await source.changed();
        continue;
      case "waiting":
        if (final || !options.follow) return;
        await source.changed();
        await delay(pauseMs, undefined, { signal });
        continue;
      case "truncated":
      case "unreachable":
        failures += 1;
        // A follower waits for the node's return; who reads once is told.
        if (failures >= failuresMax && !options.follow) {
          throw reading.error ?? new ApiError(0, "Truncated", "the log was cut off again and again");
        }
        await delay(pauseMs * Math.min(failures, 20), undefined, { signal });
    }
  }
}

type Reading =
  | (LogReading & { readonly error?: undefined })
  | { readonly cursor: LogCursor | null; readonly ended: "waiting"; readonly error?: undefined }
  | { readonly cursor: LogCursor | null; readonly ended: "unreachable"; readonly error: ApiError };

async function* readOnce(
  source: LogSource,
  cursor: LogCursor | null,
  how: { readonly final: boolean; readonly follow: boolean },
  signal: AbortSignal,
): AsyncGenerator<LogRecord, Reading> {
  const query = { container: mainContainer, follow: how.follow, sinceSecond: cursor?.base ?? null };
  try {
    const response = await source.api.openLog(source.ref.name, query, signal);
    if (response === null) return { cursor, ended: "waiting" };
    const { uid } = source.ref;
    const body = { uid, response, silenceMs, bytesMax: source.bytesMax, final: how.final };
    return yield* readLogBody(body, cursor, signal);
  } catch (error) {
    signal.throwIfAborted();
    if (!isApiError(error)) throw error;
    // The container is waiting to start, or never did.
    if (error.status === 400) return { cursor, ended: "waiting" };
    if (error.status === 404) throw new RuntimeRefusal("gone", `${source.ref.name} was removed`);
    // The kubelet can't be reached: 500 without a reason.
    if (error.retryable || error.status === 500) return { cursor, ended: "unreachable", error };
    throw error;
  }
}
