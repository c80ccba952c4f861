import { extname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { HoldfastError } from "../errors.ts";
import type { IncarnationId } from "../ids.ts";
import type { HeldLease } from "../lease.ts";
import { leaseTime, renewEveryMs, stallMaxMs } from "../lease.ts";
import {
  getShared,
  monotonicMs,
  type SharedInstant,
  setShared,
  sharedInstant,
  sharedInstants,
} from "../monotonic.ts";
import { type Microseconds, toMilliseconds } from "../time.ts";
import type { ConnectionSettings } from "./pool.ts";

/** What the keeper needs to know of a lease: it times by the monotonic clock alone. */
export type TimedLease = Omit<HeldLease, "expiresAt">;

/**
 * A lease that is being renewed. The signal aborts with `fenced` when it is lost: stop what acts under it. It aborts
 * with `cancel_requested` while the lease is held when somebody asked for the end of the Work: stopping is allowed.
 */
export type KeptLease = HeldLease & { readonly signal: AbortSignal };

/**
 * Renews the leases of a process from a thread of its own, and shows in the same round that the process is
 * alive. A blocked event loop loses nothing; one that stands still for longer than `stallMs` loses everything,
 * because it can't be told to stop.
 */
export interface LeaseKeeper {
  hold(lease: HeldLease): KeptLease;
  /** No longer renewed, without aborting its signal: it was returned, or its resource is finished. */
  drop(lease: TimedLease): void;
  /** Both for many at once, in one message to the thread: for those who take thousands a second. */
  swap<L extends TimedLease>(
    drop: readonly TimedLease[],
    hold: readonly L[],
  ): (L & { readonly signal: AbortSignal })[];
  /** When the last successful round began, on the monotonic clock; null before the first. For readiness. */
  readonly lastRenewedAt: number | null;
  /** How many leases of each kind it renews now. */
  held(): ReadonlyMap<string, number>;
  /** Ends the thread, its connection, and the incarnation. Leases still held are no longer renewed. */
  close(): Promise<void>;
}

export interface KeeperSettings {
  readonly connection: ConnectionSettings;
  readonly name: string;
  readonly holder: IncarnationId;
  readonly leaseMs: number;
  readonly renewMs: number;
  readonly stallMs: number;
  /** When the main loop last ran. */
  readonly tickedAt: SharedInstant;
  /** When the last successful round began; 0 before the first. */
  readonly renewedAt: SharedInstant;
}

/** `heldUntil` is shared, so that the main thread knows what the thread knows, however late it looks. */
export interface Held extends Pick<HeldLease, "tenant" | "kind" | "resource" | "epoch" | "heldUntilMs"> {
  readonly key: string;
  readonly heldUntil: SharedInstant;
}

export type ToThread =
  | { readonly type: "swap"; readonly drop: readonly string[]; readonly hold: readonly Held[] }
  | { readonly type: "close" };

export type FromThread =
  | { readonly type: "lost"; readonly key: string }
  /** Its end was asked for. It is still held, and renewed until it is dropped. */
  | { readonly type: "cancelled"; readonly key: string }
  | { readonly type: "error"; readonly message: string };

interface Kept {
  readonly lease: TimedLease;
  readonly heldUntil: SharedInstant;
  readonly controller: AbortController;
}

const closeMaxMs = 5_000;
/** Node's timers can't wait longer; the check that fires then sets the next one. */
const timerMaxMs = 2_000_000_000;
const restartPauseMs = 1_000;

export function startLeaseKeeper(options: {
  readonly settings: ConnectionSettings;
  readonly holder: IncarnationId;
  readonly name?: string;
  readonly leaseUs?: Microseconds;
  readonly renewMs?: number;
  readonly stallMs?: number;
  /** Failed rounds and lost connections. The thread tries again by itself. */
  readonly onError: (error: Error) => void;
  readonly onLost?: (lease: TimedLease) => void;
}): LeaseKeeper {
  const stallMs = options.stallMs ?? stallMaxMs;
  const workerData: KeeperSettings = {
    connection: options.settings,
    name: `${options.name ?? "holdfast"}/keeper`,
    holder: options.holder,
    leaseMs: toMilliseconds(options.leaseUs ?? leaseTime),
    renewMs: options.renewMs ?? renewEveryMs,
    stallMs,
    tickedAt: sharedInstant(monotonicMs()),
    renewedAt: sharedInstant(0),
  };
  const kept = new Map<string, Kept>();
  let closing = false;
  let timer: NodeJS.Timeout | undefined;
  let checksAt = Number.POSITIVE_INFINITY;
  let { worker, exited } = spawn();

  const tickMs = Math.max(10, Math.min(500, stallMs / 5));
  const ticking = setInterval(() => setShared(workerData.tickedAt, monotonicMs()), tickMs);
  ticking.unref();
  void supervise();

  function spawn(): { readonly worker: Worker; readonly exited: Promise<void> } {
    const thread = new Worker(threadFile(import.meta.url), {
      workerData,
      name: "lease keeper",
      execArgv: [],
    });
    thread.on("message", (message: FromThread) => {
      if (message.type === "error") options.onError(new Error(`the lease keeper: ${message.message}`));
      else if (message.type === "cancelled") cancel(message.key);
      else lose(message.key);
    });
    thread.on("error", (error: unknown) => {
      options.onError(error instanceof Error ? error : new Error(String(error)));
    });
    return { worker: thread, exited: new Promise((resolve) => thread.once("exit", () => resolve())) };
  }

  /** A thread that dies of a fault is replaced; what expires meanwhile is lost by its time. */
  async function supervise(): Promise<void> {
    for (;;) {
      await exited;
      if (closing) return;
      await delay(restartPauseMs, undefined, { ref: false });
      if (closing) return;
      ({ worker, exited } = spawn());
      post({ type: "swap", drop: [], hold: [...kept].map(([key, entry]) => heldOf(key, entry)) });
    }
  }

  function heldOf(key: string, { lease, heldUntil }: Kept): Held {
    const { tenant, kind, resource, epoch, heldUntilMs } = lease;
    return { key, tenant, kind, resource, epoch, heldUntilMs, heldUntil };
  }

  function swap<L extends TimedLease>(
    drop: readonly TimedLease[],
    hold: readonly L[],
  ): (L & { readonly signal: AbortSignal })[] {
    const gone = drop.map(keyOf).filter((key) => kept.delete(key));
    const cells = sharedInstants(hold.map((lease) => lease.heldUntilMs));
    const entries = hold.map((lease, place) => {
      const heldUntil = cells[place] ?? sharedInstant(lease.heldUntilMs);
      const entry = { lease, heldUntil, controller: new AbortController() };
      const key = keyOf(lease);
      kept.set(key, entry);
      checkAt(lease.heldUntilMs);
      return { key, entry, lease };
    });
    const held = closing ? [] : entries.map(({ key, entry }) => heldOf(key, entry));
    if (gone.length + held.length > 0) post({ type: "swap", drop: gone, hold: held });
    return entries.map(({ entry, lease }) => ({ ...lease, signal: entry.controller.signal }));
  }

  function post(message: ToThread): void {
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a worker has no origin
    worker.postMessage(message);
  }

  function lose(key: string): void {
    const entry = kept.get(key);
    if (entry === undefined) return;
    kept.delete(key);
    post({ type: "swap", drop: [key], hold: [] });
    const { kind, resource } = entry.lease;
    entry.controller.abort(new HoldfastError("fenced", `the lease on ${kind} ${resource} was lost`));
    options.onLost?.(entry.lease);
  }

  function cancel(key: string): void {
    const entry = kept.get(key);
    if (entry === undefined) return;
    const { kind, resource } = entry.lease;
    entry.controller.abort(
      new HoldfastError("cancel_requested", `the end of ${kind} ${resource} was asked for`),
    );
  }

  /** Loses what was not renewed in time, and sets the timer for the next that might not be. */
  function check(): void {
    clearTimeout(timer);
    checksAt = Number.POSITIVE_INFINITY;
    const now = monotonicMs();
    let next = Number.POSITIVE_INFINITY;
    for (const [key, { heldUntil }] of kept) {
      const until = getShared(heldUntil);
      if (until <= now) lose(key);
      else next = Math.min(next, until);
    }
    if (next !== Number.POSITIVE_INFINITY) checkAt(next);
  }

  /** Only one that ends earlier than all others moves the timer. */
  function checkAt(at: number): void {
    if (at >= checksAt) return;
    checksAt = at;
    clearTimeout(timer);
    timer = setTimeout(check, Math.max(1, Math.min(timerMaxMs, at - monotonicMs() + 1)));
    timer.unref();
  }

  return {
    swap,
    hold(lease) {
      const [one] = swap([], [lease]);
      if (one === undefined) throw new Error("one lease gives one");
      return one;
    },
    drop(lease) {
      swap([lease], []);
    },
    get lastRenewedAt() {
      const at = getShared(workerData.renewedAt);
      return at === 0 ? null : at;
    },
    held() {
      const counts = new Map<string, number>();
      for (const { lease } of kept.values()) counts.set(lease.kind, (counts.get(lease.kind) ?? 0) + 1);
      return counts;
    },
    async close() {
      if (closing) return;
      closing = true;
      clearInterval(ticking);
      post({ type: "close" });
      const overdue = setTimeout(() => void worker.terminate(), closeMaxMs);
      await exited;
      clearTimeout(overdue);
    },
  };
}

function keyOf({ tenant, kind, resource, epoch }: TimedLease): string {
  return `${tenant}/${kind}/${resource}/${epoch}`;
}

/** Beside this module, with its extension: also when both have been bundled. */
function threadFile(self: string): URL {
  return new URL(`./lease-keeper.thread${extname(new URL(self).pathname)}`, self);
}
