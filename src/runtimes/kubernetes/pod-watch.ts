import { setTimeout as delay } from "node:timers/promises";
import { ApiError, isRecord, readStatus } from "./api-error.ts";
import { type Pod, readPod } from "./pod.ts";
import type { PodApi } from "./pod-api.ts";
import { untilSilent } from "./silence.ts";

/** A hint that something changed. What is true is what a read says. */
export type PodEvent =
  | { readonly type: "ADDED" | "MODIFIED" | "DELETED"; readonly pod: Pod }
  /** Everything may have changed: the versions in between are gone, or the connection was silent. */
  | { readonly type: "RELISTED"; readonly pods: readonly Pod[] };

const lineBytesMax = 8 * 1024 * 1024;
const pauseMs = 250;
const pauseMsMax = 5_000;

/**
 * All changes of the pods that match a label selector, for as long as the signal lets it: list, watch from the
 * list's version, go on from the last version seen, and list again when that one is too old. Version expiry is
 * the normal case after a restart of the API server, and comes as a status 410 or as an event. A bookmark
 * carries a version and nothing else. After a silence it lists again too: a version from before a restored
 * backup lies in the server's future, and a watch from there is answered by silence.
 */
export async function* watchPods(
  api: PodApi,
  selector: string,
  signal: AbortSignal,
): AsyncGenerator<PodEvent, void> {
  let version: string | null = null;
  for (let failures = 0; !signal.aborted; ) {
    try {
      if (version === null) {
        const { pods, resourceVersion } = await listAll(api, selector, signal);
        yield { type: "RELISTED", pods };
        version = resourceVersion;
      }
      const round: Round = yield* watchOnce(api, selector, version, signal);
      version = round.version;
      failures = round.seen ? 0 : failures + 1;
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      version = null;
      failures += 1;
    }
    if (failures > 0) await pause(failures, signal);
  }
}

async function listAll(
  api: PodApi,
  selector: string,
  signal: AbortSignal,
): Promise<{ readonly pods: readonly Pod[]; readonly resourceVersion: string }> {
  const pods: Pod[] = [];
  let resourceVersion = "";
  for await (const page of api.pages(selector, signal)) {
    pods.push(...page.items);
    resourceVersion = page.resourceVersion;
  }
  return { pods, resourceVersion };
}

interface Round {
  /** Where to go on; null: list again. */
  readonly version: string | null;
  readonly seen: boolean;
}

async function* watchOnce(
  api: PodApi,
  labelSelector: string,
  from: string,
  signal: AbortSignal,
): AsyncGenerator<PodEvent, Round> {
  const response = await api.openWatch({ labelSelector, resourceVersion: from }, signal);
  const parts = untilSilent(response, api.limits.silenceMs, signal);
  let version = from;
  let seen = false;
  try {
    for await (const line of lines(parts)) {
      const event = readEvent(line);
      if (event.type === "EXPIRED") return { version: null, seen };
      seen = true;
      version = event.version;
      if (event.type !== "BOOKMARK") yield { type: event.type, pod: event.pod };
    }
  } finally {
    response.destroy();
  }
  return { version: seen ? version : null, seen };
}

type Line =
  | { readonly type: "ADDED" | "MODIFIED" | "DELETED"; readonly version: string; readonly pod: Pod }
  | { readonly type: "BOOKMARK"; readonly version: string }
  | { readonly type: "EXPIRED" };

/** An error that is not expiry ends the watch by being thrown, with the server's own status. */
function readEvent(line: string): Line {
  const value: unknown = JSON.parse(line);
  if (!isRecord(value)) throw new ApiError(502, "NotAnEvent", "the watch sent something that is no event");
  const { type, object } = value;
  switch (type) {
    case "ADDED":
    case "MODIFIED":
    case "DELETED": {
      const pod = readPod(object);
      return { type, pod, version: pod.metadata.resourceVersion };
    }
    case "BOOKMARK": {
      const metadata = isRecord(object) && isRecord(object.metadata) ? object.metadata : {};
      if (typeof metadata.resourceVersion === "string") return { type, version: metadata.resourceVersion };
      break;
    }
    case "ERROR": {
      const status = readStatus(object);
      if (status?.code === 410) return { type: "EXPIRED" };
      throw new ApiError(
        status?.code ?? 500,
        status?.reason ?? "",
        `the watch failed: ${status?.message ?? ""}`,
      );
    }
    default:
      break;
  }
  throw new ApiError(502, "NotAnEvent", `the watch sent an event of the type ${String(type)}`);
}

/** Whole lines. What a cut connection left of one is dropped: it comes again. */
async function* lines(parts: AsyncIterable<Buffer>): AsyncGenerator<string, void> {
  let rest: Buffer = Buffer.alloc(0);
  for await (const part of parts) {
    let text = rest.length === 0 ? part : Buffer.concat([rest, part]);
    for (let end = text.indexOf(10); end !== -1; end = text.indexOf(10)) {
      yield text.subarray(0, end).toString("utf8");
      text = text.subarray(end + 1);
    }
    if (text.length > lineBytesMax) throw new ApiError(502, "TooLarge", "the watch sent too long a line");
    rest = text;
  }
}

async function pause(failures: number, signal: AbortSignal): Promise<void> {
  const wait = Math.min(pauseMs * 2 ** Math.min(failures - 1, 10), pauseMsMax);
  await delay(wait, undefined, { signal }).catch(() => undefined);
}
