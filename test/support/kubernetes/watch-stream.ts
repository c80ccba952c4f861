import type { ServerResponse } from "node:http";
import { selector } from "./pod-list.ts";
import { shown } from "./pod-object.ts";
import type { PodStore, StoreEvent } from "./pod-store.ts";
import { expired } from "./status.ts";

export interface WatchFaults {
  /** Every event is sent so often. */
  copies: number;
  /** Every event waits so long. */
  delayMs: number;
  bookmarkMs: number;
}

const defaultTimeoutSeconds = 1800;
/** A bookmark comes this long before the end, if the watch is longer. */
const lastBookmarkMs = 1000;

/** One watch: lines of JSON in a chunked body, headers at once, a clean end after `timeoutSeconds`. */
export function streamWatch(
  store: PodStore,
  namespace: string,
  query: URLSearchParams,
  response: ServerResponse,
  faults: WatchFaults,
): void {
  const matches = selector(query);
  const send = (type: string, object: object) => response.write(`${JSON.stringify({ type, object })}\n`);
  const from = query.get("resourceVersion");
  const timers: NodeJS.Timeout[] = [];
  let stopListening = () => undefined as unknown;
  const end = () => {
    stopListening();
    for (const timer of timers) clearTimeout(timer);
    response.end();
  };
  response.writeHead(200, { "content-type": "application/json", "cache-control": "no-cache, private" });
  response.flushHeaders();

  const forward = (event: StoreEvent) => {
    if (event.pod.metadata.namespace !== namespace) return;
    const type = typeFor(event, matches);
    if (type === null) return;
    const write = () => {
      for (let copy = 0; copy < faults.copies; copy += 1) send(type, shown(event.pod));
    };
    if (faults.delayMs === 0) write();
    else timers.push(setTimeout(write, faults.delayMs));
  };
  const bookmark = () => {
    const metadata = { resourceVersion: String(store.version) };
    send("BOOKMARK", { kind: "Pod", apiVersion: "v1", metadata, spec: { containers: null }, status: {} });
  };

  if (from === null || from === "0") {
    for (const pod of store.all(namespace)) if (matches(pod)) send("ADDED", shown(pod));
  } else if (Number(from) < store.windowStart) {
    const status = expired(`too old resource version: ${from} (${store.windowStart})`);
    send("ERROR", status.body);
    end();
    return;
  } else {
    // One from the future matches no event until then: silence, no error.
    for (const event of store.events) if (event.version > Number(from)) forward(event);
  }
  const future = from !== null && Number(from) > store.version;
  if (!future) stopListening = store.listen(forward);
  const timeoutMs = Number(query.get("timeoutSeconds") ?? defaultTimeoutSeconds) * 1000;
  timers.push(setTimeout(end, timeoutMs));
  if (query.get("allowWatchBookmarks") === "true" && !future) {
    timers.push(setInterval(bookmark, faults.bookmarkMs));
    if (timeoutMs > lastBookmarkMs) timers.push(setTimeout(bookmark, timeoutMs - lastBookmarkMs));
  }
  response.once("close", end);
}

/** An object that stops matching is deleted to this watch, one that starts to match is added. */
function typeFor(event: StoreEvent, matches: (pod: StoreEvent["pod"]) => boolean): StoreEvent["type"] | null {
  const now = matches(event.pod);
  const before = event.before !== null && matches(event.before);
  if (event.type === "DELETED") return before || now ? "DELETED" : null;
  if (now) return before ? "MODIFIED" : "ADDED";
  return before ? "DELETED" : null;
}
