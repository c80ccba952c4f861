import { HoldfastError } from "./errors.ts";
import { type LookRow, look } from "./lookout.sql.ts";
import { monotonicMs } from "./monotonic.ts";
import type { Doorbell } from "./postgres/doorbell.ts";
import { type Database, runAlone } from "./postgres/transition.ts";

/** What a loop can wait for: changes without a position, a moved position, due leases of a kind. */
export type Topic = "unstamped" | "position" | `due:${string}`;

/** A look that found a topic to be the case. */
export interface Sighting {
  /** Counts the looks of this process; give it back to `wait` as `since`. */
  readonly serial: number;
  readonly position: bigint;
  /** For `due:KIND`, the queues with due leases. */
  readonly queues: readonly string[];
}

/**
 * The eyes of a process: one query answers everything that its loops wait for. It looks once an interval when
 * nothing happens, at once after a ring, and when the next lease becomes due, never twice at a time.
 */
export interface Lookout {
  /**
   * Resolves with the first look later than `since` that finds the topic to be the case. A loop gives the
   * serial of its previous sighting (0 at first) and so misses nothing that came while it was busy, and
   * doesn't spin on what it can't take. Rejects with the signal's reason, or when the lookout stops.
   */
  wait(topic: Topic, signal: AbortSignal, options?: { readonly since?: number }): Promise<Sighting>;
  /** After each look that finds the topic to be the case. The listener must not throw. Returns what removes it. */
  on(topic: Topic, listener: (sighting: Sighting) => void): () => void;
  /** Looks as after a ring. */
  soon(): void;
  /** Looks at once. Resolves when a look that began after the call has ended, whether it was answered or not. */
  now(): Promise<void>;
  /** The counter's position at the last answer; null before the first. */
  readonly position: bigint | null;
  /** When the database last answered, on the monotonic clock; null before the first time. For readiness. */
  readonly lastAnsweredAt: number | null;
  stop(): Promise<void>;
}

/** So that at most about 200 looks a second are made, however often it rings. */
const gapMs = 5;
/** A look that takes long, passing over what an old snapshot keeps, is made for a fifth of the time at most. */
const gapForLook = 4;
const failedGapMs = 250;
const backoffMaxMs = 5_000;

export function startLookout(options: {
  readonly db: Pick<Database, "pools">;
  readonly doorbell: Pick<Doorbell, "onRing">;
  /** The lease kinds that this process takes. */
  readonly kinds: readonly string[];
  readonly intervalMs?: number;
  /** How long a look after a ring is put off, where the loop that is in a hurry hears the ring itself. At once without. */
  readonly afterRingMs?: number;
  readonly onError: (error: unknown) => void;
}): Lookout {
  const { intervalMs = 1_250, afterRingMs = 0 } = options;
  const listeners = new Map<Topic, Set<(sighting: Sighting) => void>>();
  const latest = new Map<Topic, Sighting>();
  const stopping = new AbortController();
  let asked: (() => void)[] = [];
  let rung = false;
  let endPause = () => {};
  let putOff: NodeJS.Timeout | undefined;
  let serial = 0;
  let position: bigint | null = null;
  let lastAnsweredAt: number | null = null;

  function ring(): void {
    clearTimeout(putOff);
    putOff = undefined;
    rung = true;
    endPause();
  }

  function ringSoon(): void {
    if (stopping.signal.aborted) return;
    if (afterRingMs === 0) ring();
    else putOff ??= setTimeout(ring, afterRingMs);
  }

  function report(rows: readonly LookRow[]): void {
    serial += 1;
    const topics = sightings(rows, position);
    const at = rows[0]?.position ?? position ?? 0n;
    position = at;
    lastAnsweredAt = monotonicMs();
    for (const [topic, queues] of topics) {
      const sighting = { serial, position: at, queues };
      latest.set(topic, sighting);
      for (const listener of listeners.get(topic) ?? []) listener(sighting);
    }
  }

  function pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      // A timer cuts fractions off, and would end too early.
      const timer = setTimeout(resolve, Math.ceil(ms));
      endPause = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async function run(): Promise<void> {
    let backoffMs = intervalMs;
    while (!stopping.signal.aborted) {
      rung = false;
      const waiting = asked;
      asked = [];
      const started = monotonicMs();
      let restMs: number;
      let answered = true;
      try {
        const rows = await runAlone(options.db, "dispatcher", look, { kinds: options.kinds });
        if (!stopping.signal.aborted) report(rows);
        restMs = Math.min(intervalMs, nextDueMs(rows));
        backoffMs = intervalMs;
      } catch (error) {
        answered = false;
        if (!stopping.signal.aborted) options.onError(error);
        restMs = backoffMs = Math.min(backoffMs * 2, backoffMaxMs);
      }
      for (const resolve of waiting) resolve();
      const tookMs = monotonicMs() - started;
      const until = (ms: number) => Math.max(0, started + ms - monotonicMs());
      const gap = answered
        ? Math.max(until(gapMs), Math.min(gapForLook * tookMs, intervalMs))
        : until(failedGapMs);
      if (gap > 0 && !stopping.signal.aborted) await unhurried(gap);
      if (!rung && !stopping.signal.aborted) await pause(until(restMs));
    }
  }

  /** A pause that only stopping ends: rings are heard, and wait. */
  function unhurried(ms: number): Promise<void> {
    const paused = pause(ms);
    const end = endPause;
    endPause = () => {
      if (stopping.signal.aborted) end();
    };
    return paused;
  }

  function on(topic: Topic, listener: (sighting: Sighting) => void): () => void {
    const set = listeners.get(topic) ?? new Set();
    listeners.set(topic, set.add(listener));
    return () => void set.delete(listener);
  }

  const deaf = options.doorbell.onRing(ringSoon);
  const ended = run();

  return {
    on,
    wait(topic, signal, { since } = {}) {
      return new Promise((resolve, reject) => {
        if (signal.aborted) return reject(signal.reason as Error);
        if (stopping.signal.aborted) return reject(stopped());
        const seen = latest.get(topic);
        if (since !== undefined && seen !== undefined && seen.serial > since) return resolve(seen);
        const onAbort = () => {
          settle();
          reject(signal.aborted ? (signal.reason as Error) : stopped());
        };
        const off = on(topic, (sighting) => {
          settle();
          resolve(sighting);
        });
        const settle = () => {
          off();
          signal.removeEventListener("abort", onAbort);
          stopping.signal.removeEventListener("abort", onAbort);
        };
        signal.addEventListener("abort", onAbort);
        stopping.signal.addEventListener("abort", onAbort);
      });
    },
    soon: ringSoon,
    now() {
      if (stopping.signal.aborted) return Promise.resolve();
      const looked = new Promise<void>((resolve) => asked.push(resolve));
      ring();
      return looked;
    },
    get position() {
      return position;
    },
    get lastAnsweredAt() {
      return lastAnsweredAt;
    },
    async stop() {
      deaf();
      clearTimeout(putOff);
      stopping.abort();
      endPause();
      await ended;
      for (const resolve of asked) resolve();
    },
  };
}

const stopped = () => new HoldfastError("unavailable", "the lookout has stopped");

/** Which topics a look found to be the case, each with its queues. */
function sightings(rows: readonly LookRow[], before: bigint | null): ReadonlyMap<Topic, readonly string[]> {
  const topics = new Map<Topic, string[]>();
  for (const row of rows) {
    if (row.unstamped) topics.set("unstamped", []);
    if (row.position !== before) topics.set("position", []);
    if (row.kind === null || row.queue === null || row.wake_at === null || row.wake_at > row.now) continue;
    const topic: Topic = `due:${row.kind}`;
    topics.set(topic, [...(topics.get(topic) ?? []), row.queue]);
  }
  return topics;
}

/** How long until the first lease that is not due yet becomes so. */
function nextDueMs(rows: readonly LookRow[]): number {
  const later = rows.flatMap(({ wake_at, now }) =>
    wake_at === null || wake_at <= now ? [] : [Number(wake_at - now) / 1_000 + 1],
  );
  return Math.min(...later, Number.MAX_SAFE_INTEGER);
}
