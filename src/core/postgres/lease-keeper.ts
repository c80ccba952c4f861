import { extname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { HoldfastError } from "../errors.ts";
import type { IncarnationId } from "../ids.ts";
import type { HeldLease } from "../lease.ts";
import { leaseTime, renewEveryMs, stallMaxMs } from "../lease.ts";
import { getShared, monotonicMs, type SharedInstant, setShared, sharedInstant } from "../monotonic.ts";
import { type Microseconds, toMilliseconds } from "../time.ts";
import { endHeld, type HeldInstants, heldInstants, heldUntil } from "./held-instants.ts";
import type { ConnectionSettings } from "./pool.ts";

/** What the keeper needs to know of a lease: it times by the monotonic clock alone. */
export type TimedLease = Omit<HeldLease, "expiresAt">;

/**
 * A lease that is being renewed. The signal aborts with `fenced` when it is lost: stop what acts under it. It aborts
 * with `cancel_requested` while the lease is held when somebody asked for the end of the Work: stopping is allowed.
 */
export type KeptLease = HeldLease & { readonly signal: AbortSignal };

/** One of many that were taken together. */
export interface KeptOne {
  readonly lost: boolean;
  /** Made when it is first asked for. */
  readonly signal: AbortSignal;
  /** No longer renewed, without aborting the signal. */
  drop(): void;
}

/**
 * Renews the leases of a process from a thread of its own, and shows in the same round that the process is
 * alive. A blocked event loop loses nothing; one that stands still for longer than `stallMs` loses everything,
 * because it can't be told to stop.
 */
export interface LeaseKeeper {
  hold(lease: HeldLease): KeptLease;
  /** No longer renewed, without aborting its signal: it was returned, or its resource is finished. */
  drop(lease: TimedLease): void;
  /** Many of one kind, told to the thread together, and not at all when they are dropped soon: for thousands a second. */
  holdAll(leases: readonly TimedLease[]): readonly KeptOne[];
  /** When the last successful round began, on the monotonic clock; null before the first. For readiness. */
  readonly lastRenewedAt: number | null;
  /** Resolves when the first round has succeeded, or when it is closed: until then nothing is renewed. */
  readonly atWork: Promise<void>;
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

/**
 * Leases of one kind that were taken together, as they cross to the thread: texts joined by commas, which neither a
 * tenant nor an id has. The instants are shared, so that the main thread knows what the thread knows, however late it
 * looks, and the thread which are over.
 */
export interface HeldBlock {
  readonly id: number;
  readonly kind: string;
  readonly tenants: string;
  readonly resources: string;
  readonly epochs: BigInt64Array;
  readonly heldUntil: HeldInstants;
  /** Of the first of them to expire. */
  readonly untilMs: number;
}

export type ToThread = readonly HeldBlock[] | "close";

/** How long the thread may not know of a lease: most are over by then, and to wake it for each costs more than to run them. */
const tellWithinMs = 500;

export type FromThread =
  | { readonly type: "lost"; readonly block: number; readonly place: number }
  /** Its end was asked for. It is still held, and renewed until it is dropped. */
  | { readonly type: "cancelled"; readonly block: number; readonly place: number }
  /** After the first round that succeeded. */
  | { readonly type: "at work" }
  | { readonly type: "error"; readonly message: string };

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
  const settings: KeeperSettings = {
    connection: options.settings,
    name: `${options.name ?? "holdfast"}/keeper`,
    holder: options.holder,
    leaseMs: toMilliseconds(options.leaseUs ?? leaseTime),
    renewMs: options.renewMs ?? renewEveryMs,
    stallMs,
    tickedAt: sharedInstant(monotonicMs()),
    renewedAt: sharedInstant(0),
  };
  const blocks = new Map<number, Block>();
  /** Those that the thread does not know of yet. */
  let untold: Block[] = [];
  let telling: NodeJS.Timeout | undefined;
  /** Those that were taken one at a time, by their names: they are dropped by these. */
  const alone = new Map<string, Kept>();
  let blockId = 0;
  let atWork = () => {};
  const begun = new Promise<void>((resolve) => {
    atWork = resolve;
  });
  let closing = false;
  let timer: NodeJS.Timeout | undefined;
  let checksAt = Number.POSITIVE_INFINITY;
  let { worker, exited } = spawn();

  const tickMs = Math.max(10, Math.min(500, stallMs / 5));
  const ticking = setInterval(() => setShared(settings.tickedAt, monotonicMs()), tickMs);
  ticking.unref();
  void supervise();

  function spawn(): { readonly worker: Worker; readonly exited: Promise<void> } {
    const thread = new Worker(threadFile(import.meta.url), {
      workerData: settings,
      name: "lease keeper",
      execArgv: [],
    });
    thread.on("message", (message: FromThread) => {
      if (message.type === "error") options.onError(new Error(`the lease keeper: ${message.message}`));
      else if (message.type === "at work") atWork();
      else {
        const one = blocks.get(message.block)?.kept[message.place];
        if (message.type === "lost") one?.lose();
        else one?.cancel();
      }
    });
    thread.on("error", (error: unknown) => {
      options.onError(error instanceof Error ? error : new Error(String(error)));
    });
    const exited = new Promise<void>((resolve) => thread.once("exit", () => resolve()));
    return { worker: thread, exited };
  }

  /** A thread that dies of a fault is replaced; what expires meanwhile is lost by its time. */
  async function supervise(): Promise<void> {
    for (;;) {
      await exited;
      if (closing) return;
      await delay(restartPauseMs, undefined, { ref: false });
      if (closing) return;
      ({ worker, exited } = spawn());
      untold = [...blocks.values()];
      tell();
    }
  }

  function holdAll(leases: readonly TimedLease[]): readonly Kept[] {
    if (leases.length === 0) return [];
    const id = (blockId += 1);
    const block = new Block(id, leases, { ended: () => void blocks.delete(id), lost });
    blocks.set(id, block);
    checkAt(block.untilMs);
    if (!closing) tellLater(block);
    return block.kept;
  }

  function lost(lease: TimedLease): void {
    alone.delete(keyOf(lease));
    options.onLost?.(lease);
  }

  /**
   * The main loop may stand still for `stallMs` from this moment on. Where the lease outlasts that, with time for a
   * renewal, the thread hears of it with the others, if it is still held then.
   */
  function tellLater(block: Block): void {
    untold.push(block);
    const spareMs = block.untilMs - monotonicMs() - tellWithinMs - settings.stallMs;
    if (spareMs < settings.renewMs / 2) tell();
    else if (telling === undefined) telling = setTimeout(tell, tellWithinMs).unref();
  }

  function tell(): void {
    clearTimeout(telling);
    telling = undefined;
    const held = untold.flatMap((block) => block.told() ?? []);
    untold = [];
    if (held.length > 0) post(held);
  }

  function post(message: ToThread): void {
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a worker has no origin
    worker.postMessage(message);
  }

  /** Loses what was not renewed in time, and sets the timer for the next that might not be. */
  function check(): void {
    clearTimeout(timer);
    checksAt = Number.POSITIVE_INFINITY;
    const now = monotonicMs();
    let next = Number.POSITIVE_INFINITY;
    for (const { kept } of blocks.values()) {
      for (const one of kept) {
        if (one.over) continue;
        const until = one.heldUntilMs;
        if (until <= now) one.lose();
        else next = Math.min(next, until);
      }
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
    atWork: begun,
    holdAll,
    hold(lease) {
      const [one] = holdAll([lease]);
      if (one === undefined) throw new Error("one lease gives one");
      const key = keyOf(lease);
      alone.get(key)?.drop();
      alone.set(key, one);
      return { ...lease, signal: one.signal };
    },
    drop(lease) {
      const key = keyOf(lease);
      alone.get(key)?.drop();
      alone.delete(key);
    },
    get lastRenewedAt() {
      const at = getShared(settings.renewedAt);
      return at === 0 ? null : at;
    },
    held() {
      const counts = new Map<string, number>();
      for (const { kind, living } of blocks.values()) counts.set(kind, (counts.get(kind) ?? 0) + living);
      return counts;
    },
    async close() {
      if (closing) return;
      closing = true;
      atWork();
      clearInterval(ticking);
      clearTimeout(telling);
      post("close");
      const overdue = setTimeout(() => void worker.terminate(), closeMaxMs);
      await exited;
      clearTimeout(overdue);
    },
  };
}

interface OfBlock {
  /** The last one of the block is over. */
  readonly ended: () => void;
  readonly lost: (lease: TimedLease) => void;
}

/** What the main thread has of leases that were taken together. */
class Block {
  readonly kind: string;
  /** Of the first of them to expire. */
  readonly untilMs: number;
  readonly kept: readonly Kept[];
  readonly #id: number;
  readonly #leases: readonly TimedLease[];
  readonly #of: OfBlock;
  /** How many are not over. */
  living: number;
  #shared: HeldInstants | undefined;

  constructor(id: number, leases: readonly TimedLease[], of: OfBlock) {
    this.#id = id;
    this.#leases = leases;
    this.#of = of;
    this.kind = leases[0]?.kind ?? "";
    this.untilMs = leases.reduce(
      (least, lease) => Math.min(least, lease.heldUntilMs),
      Number.POSITIVE_INFINITY,
    );
    this.living = leases.length;
    this.kept = leases.map((lease, place) => new Kept(lease, this, place));
  }

  /** As it crosses to the thread; nothing when all are over. From now on the instants are shared. */
  told(): HeldBlock | undefined {
    if (this.living === 0) return undefined;
    const leases = this.#leases;
    this.#shared = heldInstants(
      leases.map((lease, place) => (this.kept[place]?.over ? null : this.until(lease, place))),
    );
    return {
      id: this.#id,
      kind: this.kind,
      tenants: leases.map((lease) => lease.tenant).join(","),
      resources: leases.map((lease) => lease.resource).join(","),
      epochs: BigInt64Array.from(leases, (lease) => lease.epoch),
      heldUntil: this.#shared,
      untilMs: this.untilMs,
    };
  }

  until(lease: TimedLease, place: number): number {
    return this.#shared === undefined ? lease.heldUntilMs : heldUntil(this.#shared, place);
  }

  end(place: number): void {
    if (this.#shared !== undefined) endHeld(this.#shared, place);
    this.living -= 1;
    if (this.living === 0) this.#of.ended();
  }

  lost(lease: TimedLease): void {
    this.#of.lost(lease);
  }
}

/** What the main thread has of one lease. It is over when it was dropped or lost. */
class Kept implements KeptOne {
  readonly #lease: TimedLease;
  readonly #block: Block;
  readonly #place: number;
  #controller: AbortController | undefined;
  #cancelled = false;
  over = false;
  lost = false;

  constructor(lease: TimedLease, block: Block, place: number) {
    this.#lease = lease;
    this.#block = block;
    this.#place = place;
  }

  get heldUntilMs(): number {
    return this.#block.until(this.#lease, this.#place);
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.lost || this.#cancelled) this.#controller.abort(this.#reason());
    return this.#controller.signal;
  }

  drop(): void {
    if (this.over) return;
    this.over = true;
    this.#block.end(this.#place);
  }

  lose(): void {
    if (this.over) return;
    this.lost = true;
    this.drop();
    this.#controller?.abort(this.#reason());
    this.#block.lost(this.#lease);
  }

  cancel(): void {
    if (this.over) return;
    this.#cancelled = true;
    this.#controller?.abort(this.#reason());
  }

  /** Whichever came first is the reason that the signal gives. */
  #reason(): HoldfastError {
    const { kind, resource } = this.#lease;
    if (this.#cancelled)
      return new HoldfastError("cancel_requested", `the end of ${kind} ${resource} was asked for`);
    return new HoldfastError("fenced", `the lease on ${kind} ${resource} was lost`);
  }
}

function keyOf({ tenant, kind, resource, epoch }: TimedLease): string {
  return `${tenant}/${kind}/${resource}/${epoch}`;
}

/** Beside this module, with its extension: also when both have been bundled. */
function threadFile(self: string): URL {
  return new URL(`./lease-keeper.thread${extname(new URL(self).pathname)}`, self);
}
