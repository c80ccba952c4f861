import { signal } from "@preact/signals";
import { ApiError, type ChangeEvent, CursorExpiredError } from "../client/client.ts";
import { client, lapse, signIn, watcher } from "./account.ts";
import { serverNow } from "./clock.ts";
import { seen, untilSeen } from "./seen.ts";

/**
 * One stream of the tenant's changes feeds every page. Its breaks are no secret: what is shown is as old as the
 * last change that came, and the badge says so.
 */
export type Link =
  | { readonly state: "connecting" }
  | { readonly state: "live" }
  /** Connected again, and reading what happened meanwhile. */
  | { readonly state: "catching up" }
  /** Nobody looks at this tab. */
  | { readonly state: "paused" }
  | { readonly state: "disconnected"; readonly error: ApiError; readonly again: number };

export const link = signal<Link>({ state: "connecting" });
/** Grows when changes were missed for good: what was read before has to be read again. */
export const gaps = signal(0);
/** The newest last; as many as anybody looks at. */
export const recent = signal<readonly ChangeEvent[]>([]);
export const since = signal(Date.now());

const recentMax = 2_000;
/** A stream that has said nothing for so long has said all that there was. */
const quietMs = 400;
const waitsMs = [500, 1_000, 2_000, 4_000, 8_000, 15_000];

type Listener = (change: ChangeEvent) => void;
const listeners = new Set<Listener>();

export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

let cursor: string | undefined;
let pending: ChangeEvent[] = [];
let retryNow = () => {};

/** Don't wait for the next try. */
export const reconnect = (): void => retryNow();

/** Runs for as long as somebody is signed in. */
export async function follow(signal: AbortSignal): Promise<void> {
  cursor = undefined;
  since.value = Date.now();
  recent.value = [];
  for (let failures = 0; !signal.aborted; ) {
    if (!seen.peek()) {
      link.value = { state: "paused" };
      await untilSeen(signal);
    }
    const connection = new AbortController();
    const stop = seen.subscribe((looked) => {
      if (!looked) connection.abort();
    });
    try {
      await connect(AbortSignal.any([signal, connection.signal]), () => {
        failures = 0;
      });
    } catch (error) {
      if (signal.aborted || connection.signal.aborted) continue;
      if (error instanceof CursorExpiredError) {
        cursor = error.cursor ?? undefined;
        gaps.value += 1;
        continue;
      }
      const refused = error instanceof ApiError ? error : null;
      if (refused?.status === 401) return lapse();
      if (refused?.status === 403) {
        link.value = { state: "disconnected", error: refused, again: Number.POSITIVE_INFINITY };
        return;
      }
      await pause(refused ?? failure(error), failures, signal);
      failures += 1;
    } finally {
      stop();
    }
  }
}

async function connect(signal: AbortSignal, connected: () => void): Promise<void> {
  const again = cursor !== undefined;
  if (link.value.state !== "disconnected") link.value = { state: again ? "catching up" : "connecting" };
  // From a list's cursor, so that nothing is missed between a page's first look and the stream.
  cursor ??= await firstCursor(signal);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const settle = () => {
    link.value = { state: "live" };
    connected();
  };
  const opened = () => {
    link.value = { state: again ? "catching up" : "connecting" };
    timer = setTimeout(settle, quietMs);
  };
  try {
    for await (const change of watcher(opened).watch({ after: cursor, signal })) {
      ({ cursor } = change);
      hand(change);
      if (link.value.state === "live") continue;
      clearTimeout(timer);
      timer = setTimeout(settle, quietMs);
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Lists give cursors; a narrow token may have none of them, and then begins with what comes next. */
async function firstCursor(signal: AbortSignal): Promise<string | undefined> {
  const few = { limit: 1, signal };
  for (const look of [() => client.listJobs(few).page(), () => client.listSessions(few).page()]) {
    try {
      return (await look()).cursor;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 403) throw error;
    }
  }
  return undefined;
}

/** Listeners hear each change; the list of all is renewed once a frame, however many there are. */
function hand(change: ChangeEvent): void {
  for (const listener of listeners) listener(change);
  if (pending.push(change) > 1) return;
  setTimeout(() => {
    recent.value = [...recent.value, ...pending].slice(-recentMax);
    pending = [];
  }, 50);
}

async function pause(error: ApiError, failures: number, signal: AbortSignal): Promise<void> {
  const waitMs = waitsMs[Math.min(failures, waitsMs.length - 1)] ?? 0;
  link.value = { state: "disconnected", error, again: serverNow() + waitMs };
  await new Promise<void>((resolve) => {
    const done = () => {
      clearTimeout(timer);
      removeEventListener("online", done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, waitMs);
    addEventListener("online", done);
    signal.addEventListener("abort", done);
    retryNow = done;
  });
}

export const failure = (error: unknown): ApiError =>
  error instanceof ApiError
    ? error
    : new ApiError({ code: "unexpected_answer", status: 0, detail: String(error), cause: error });

/** Follows whoever is signed in. */
export function startFollowing(): void {
  let stop: AbortController | undefined;
  let tenant: string | null = null;
  signIn.subscribe((now) => {
    const next = now.state === "in" ? `${now.account.tenant} ${now.account.principal}` : null;
    if (next === tenant) return;
    stop?.abort();
    tenant = next;
    if (next === null) return;
    stop = new AbortController();
    void follow(stop.signal);
  });
}
