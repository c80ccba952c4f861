import { setTimeout as delay } from "node:timers/promises";
import { isHoldfastError } from "../core/errors.ts";
import type { IncarnationId } from "../core/ids.ts";
import { monotonicMs } from "../core/monotonic.ts";
import type { LeaseKeeper, TimedLease } from "../core/postgres/lease-keeper.ts";
import { sqlstateOf } from "../core/postgres/sqlstate.ts";
import type { Database } from "../core/postgres/transition.ts";
import { type Microseconds, toMilliseconds } from "../core/time.ts";
import type { Boundary } from "./counters.ts";
import type { WorkDefinition } from "./define.ts";
import { handle } from "./handler.ts";
import { pacing } from "./pacing.ts";
import { reconcileOne } from "./reconcile.ts";
import { permitsAhead } from "./safety.ts";
import {
  type Claimed,
  type Claims,
  claimWork,
  type Done,
  leaseOf,
  observeWork,
  type Permitted,
  readPermit,
  recoverWork,
  type Turn,
  turnWork,
} from "./turn.store.ts";

type KeptLease = TimedLease & { readonly signal: AbortSignal };

export interface EngineOptions {
  readonly db: Database;
  readonly holder: IncarnationId;
  readonly keeper: Pick<LeaseKeeper, "swap">;
  /** The lanes that are looked into, each with what runs its items. */
  readonly lanes: ReadonlyMap<string, WorkDefinition>;
  /** Handlers in flight, at most. */
  readonly concurrency: number;
  readonly leaseUs: Microseconds;
  /** How long running handlers are waited for when the engine stops; then their signals abort. */
  readonly graceMs: number;
  /** Under which policy late results are kept. */
  readonly retention: string | null;
  readonly onError: (error: unknown, what: string) => void;
  /** For counting; never throws. */
  readonly onSettled?: (name: string, outcome: string) => void;
  /** For counting; never throws. */
  readonly onRefused?: (name: string, boundary: Boundary, reason: string) => void;
  /** After a commit that settled something. */
  readonly onTurn?: () => void;
}

/** Claims, permits, runs and settles, until it is stopped. */
export interface Engine {
  /** Something may be due: look now. */
  wake(): void;
  readonly inFlight: number;
  stop(): Promise<void>;
}

const claimMax = 500;
const turnMax = 500;
const retryFirstMs = 50;
const retryMaxMs = 2_000;

/**
 * The loop of one worker. What it has is in one of four places: claimed (no permit yet), ready (permitted, waits
 * for a free handler), running, done (waits for the next turn, which settles it). One turn is under way at a
 * time; what happens meanwhile goes into the next, so that turns are as large as the load makes them.
 */
export function startEngine(options: EngineOptions): Engine {
  const { db, holder, keeper, lanes, concurrency } = options;
  const pace = pacing(concurrency);
  const stopping = new AbortController();
  const aborting = new AbortController();
  const claimed: Claimed[] = [];
  const ready: { readonly item: Permitted; readonly kept: KeptLease }[] = [];
  const done: Done[] = [];
  /** Claimed, and waiting for the reconciler of their version. */
  const asking: Claimed[] = [];
  /** Leases that are to be dropped by the next message to the keeper. */
  const finished: KeptLease[] = [];
  const background = new Set<Promise<void>>();
  let running = 0;
  let reconciling = 0;
  let claiming = false;
  let turning = false;
  let woken = true;
  let scheduled = false;
  let closed = () => {};

  /** Many things happen in one round of the event loop; what they call for is looked at once, after it. */
  function poke(): void {
    if (scheduled) return;
    scheduled = true;
    setImmediate(() => {
      scheduled = false;
      // All of it may have expired while this process stood still: then no turn comes that would leave it out.
      if ((claimed[0]?.heldUntilMs ?? Number.POSITIVE_INFINITY) <= monotonicMs()) forget([]);
      if (!claiming && wantsClaim()) follow(claim());
      if (!turning && (done.length > 0 || permittable().length > 0 || givesBack())) follow(turn());
      if (idle()) closed();
    });
  }

  /** Runs beside the rest. It reports its own failures, and never rejects. */
  function follow(task: Promise<void>): void {
    const tracked = task.finally(() => {
      background.delete(tracked);
      poke();
    });
    background.add(tracked);
  }

  const givesBack = () => stopping.signal.aborted && claimed.length + asking.length + ready.length > 0;
  const idle = () =>
    stopping.signal.aborted &&
    running + ready.length + claimed.length + asking.length + done.length + background.size === 0;

  function wantsClaim(): boolean {
    return woken && !stopping.signal.aborted && claimed.length < pace.lowWater();
  }

  async function claim(): Promise<void> {
    claiming = true;
    woken = false;
    const limit = pace.claimSize(claimMax);
    try {
      const claims = await claimWork(db, {
        holder,
        lanes: [...lanes.keys()],
        limit,
        leaseUs: options.leaseUs,
      });
      const taken = claims.claimed.length + claims.lost.length + claims.toReconcile.length;
      pace.claimed(taken, limit);
      claimed.push(...claims.claimed);
      // A full batch: there is more. What was taken may also stand in the way of more.
      woken ||= taken >= limit || claims.lost.length > 0;
      await attend(claims);
    } catch (error) {
      options.onError(error, "work could not be claimed");
      if (isHoldfastError(error, "deployment_fenced")) options.onRefused?.("", "claim", error.code);
      woken = true;
      await delay(retryFirstMs * 4, undefined, { signal: stopping.signal }).catch(() => undefined);
    } finally {
      claiming = false;
    }
  }

  async function attend({ lost, toReconcile }: Claims): Promise<void> {
    if (lost.length > 0) {
      await recoverWork(db, lost).catch(async () => {
        // One that can't be decided must not keep the others waiting.
        for (const item of lost) {
          await recoverWork(db, [item]).catch((error: unknown) =>
            options.onError(error, "lost work could not be recovered"),
          );
        }
      });
    }
    // What finds no place waits for its lease to end, and is claimed again.
    asking.push(...toReconcile.slice(0, claimMax - asking.length));
    reconcileNext();
  }

  /** As many reconcilers at a time as handlers. */
  function reconcileNext(): void {
    while (reconciling < concurrency && !stopping.signal.aborted) {
      const item = asking.shift();
      if (item === undefined) return;
      const work = lanes.get(item.lane);
      if (work === undefined || item.heldUntilMs <= monotonicMs()) continue;
      reconciling += 1;
      follow(
        reconcile(work, item).finally(() => {
          reconciling -= 1;
          reconcileNext();
        }),
      );
    }
  }

  async function reconcile(work: WorkDefinition, item: Claimed): Promise<void> {
    const [kept] = keeper.swap([], [leaseOf(item, holder)]);
    if (kept === undefined) return;
    try {
      await reconcileOne({ db, holder, work, item, signal: AbortSignal.any([kept.signal, aborting.signal]) });
    } catch (error) {
      options.onError(error, "work could not be reconciled");
    } finally {
      keeper.swap([kept], []);
    }
  }

  /** Of what is claimed, in order, what may have a permit now: some only when a handler is free for it. */
  function permittable(): Claimed[] {
    if (stopping.signal.aborted) return [];
    const taken = running + ready.length;
    const bound = concurrency + pace.ahead();
    const now = monotonicMs();
    const chosen: Claimed[] = [];
    let strict = 0;
    for (const item of claimed) {
      if (chosen.length >= turnMax || taken + chosen.length >= bound) break;
      const work = lanes.get(item.lane);
      if (work === undefined || item.heldUntilMs <= now) continue;
      if (!permitsAhead[work.safety]) {
        if (taken + chosen.length >= concurrency) continue;
        strict += 1;
      } else if (strict > 0 && taken + chosen.length >= concurrency) {
        // A strict one in this turn runs at once, so nothing is put before it.
        break;
      }
      chosen.push(item);
    }
    return chosen;
  }

  async function turn(): Promise<void> {
    turning = true;
    const settle = done.splice(0, turnMax);
    if (stopping.signal.aborted) settle.push(...givenBack());
    const next = permittable();
    forget(next);
    const startedMs = monotonicMs();
    try {
      const result = await turnWork(db, holder, settle, next);
      pace.turned(monotonicMs() - startedMs);
      if (settle.length > 0) options.onTurn?.();
      await accept(result);
    } catch (error) {
      await salvage(settle, next, error);
    } finally {
      turning = false;
    }
  }

  /** Also leaves out what is no longer ours: somebody else will claim it. */
  function forget(next: readonly Claimed[]): void {
    const gone = new Set(next);
    const now = monotonicMs();
    const kept = claimed.filter((item) => !gone.has(item) && item.heldUntilMs > now);
    if (options.onRefused !== undefined) {
      for (const item of claimed)
        if (!gone.has(item) && item.heldUntilMs <= now) options.onRefused(nameOf(item), "claim", "expired");
    }
    claimed.splice(0, claimed.length, ...kept);
    if (claimed.length < pace.lowWater()) poke();
  }

  function givenBack(): Done[] {
    const idleOnes = [...claimed.splice(0), ...asking.splice(0)].map((item) => ({
      ...item,
      attempt: 0,
      circuitKey: null,
    }));
    const unused = ready.splice(0).map(({ item, kept }) => {
      finished.push(kept);
      return item;
    });
    return [...idleOnes, ...unused].map((item) => ({ item, outcome: { type: "returned" } }));
  }

  async function accept(result: Turn): Promise<void> {
    const drops = finished.splice(0);
    const holds = result.permitted.map((item) => leaseOf(item, holder));
    const kept = keeper.swap(drops, holds);
    for (const [place, item] of result.permitted.entries()) {
      const lease = kept[place];
      if (lease !== undefined) ready.push({ item, kept: lease });
    }
    start();
    for (const { done: one, what } of result.settled) {
      if (one.outcome.type !== "returned") options.onSettled?.(nameOf(one.item), what);
    }
    for (const { item, what } of result.passed) options.onRefused?.(nameOf(item), "permit", what);
    for (const one of result.unmatched) await quarantine(one);
  }

  async function quarantine(one: Done): Promise<void> {
    let what: string;
    try {
      what = await observeWork(db, holder, one, options.retention);
    } catch (error) {
      options.onError(error, "a late result could not be kept");
      if (passes(error)) what = "held";
      else if (one.outcome.type === "succeeded" && one.outcome.result !== "") {
        // That it was late is worth keeping, also where its result can't be.
        return quarantine({ ...one, outcome: { type: "succeeded", result: "" } });
      } else what = "dropped";
    }
    options.onSettled?.(nameOf(one.item), what);
    if (what === "quarantined") options.onRefused?.(nameOf(one.item), "completion", what);
    if (what === "held") done.push(one);
  }

  /**
   * A turn that threw settled nothing, or everything and only the answer was lost. Sent again, what was settled
   * matches nothing and is read back; what was permitted is looked at before it runs. A turn that the database
   * refuses is halved until the one row that it refuses is alone.
   */
  async function salvage(settle: readonly Done[], next: readonly Claimed[], error: unknown): Promise<void> {
    if (passes(error)) {
      options.onError(error, "a turn was not answered");
      done.unshift(...settle);
      for (let pauseMs = retryFirstMs; ; pauseMs = Math.min(pauseMs * 2, retryMaxMs)) {
        await delay(pauseMs);
        try {
          await reread(next);
          return;
        } catch (again) {
          if (passes(again)) continue;
          // What it may have been given is left to its lease.
          options.onError(again, "permits could not be read back");
          return;
        }
      }
    }
    if (settle.length + next.length <= 1) {
      options.onError(error, "one item of work was refused");
      if (isHoldfastError(error, "deployment_fenced"))
        options.onRefused?.("", settle.length > 0 ? "completion" : "permit", error.code);
      const [one] = settle;
      // The effect has happened: that its result can't be stored does not make it a failure.
      if (one?.outcome.type === "succeeded" && one.outcome.result !== "") {
        done.push({ ...one, outcome: { type: "succeeded", result: "" } });
      }
      return;
    }
    const parts =
      settle.length > 0 && next.length > 0
        ? [[settle, []] as const, [[], next] as const]
        : [
            [
              settle.slice(0, Math.ceil(settle.length / 2)),
              next.slice(0, Math.ceil(next.length / 2)),
            ] as const,
            [settle.slice(Math.ceil(settle.length / 2)), next.slice(Math.ceil(next.length / 2))] as const,
          ];
    for (const [left, right] of parts) {
      try {
        await accept(await turnWork(db, holder, left, right));
      } catch (inner) {
        await salvage(left, right, inner);
      }
    }
  }

  async function reread(next: readonly Claimed[]): Promise<void> {
    for (const item of next) {
      const row = await readPermit(db, item);
      // A permit that nobody has used yet: it is ours, and asking for another one would be refused.
      if (row?.epoch === item.epoch && row.holder === holder && row.work_state === "permitted") {
        done.push({
          item: { ...item, attempt: row.attempt ?? 1, circuitKey: null },
          outcome: { type: "returned" },
        });
      } else if (row?.epoch === item.epoch && row.holder === holder && row.work_state === "leased") {
        claimed.unshift(item);
      }
    }
  }

  function start(): void {
    // What is ready when the engine stops is given back by its next turn.
    while (running < concurrency && !stopping.signal.aborted) {
      const one = ready.shift();
      if (one === undefined) break;
      const work = lanes.get(one.item.lane);
      if (work === undefined || one.kept.signal.aborted || one.item.startByMs <= monotonicMs()) {
        finish(one.kept, { item: one.item, outcome: { type: "returned" } });
        continue;
      }
      running += 1;
      void run(work, one.item, one.kept);
    }
  }

  async function run(work: WorkDefinition, item: Permitted, kept: KeptLease): Promise<void> {
    const startedMs = monotonicMs();
    const outcome = await handle(work, item, [kept.signal, aborting.signal], (error) =>
      options.onError(error, `a result of ${work.name} could not be stored`),
    );
    running -= 1;
    pace.served(monotonicMs() - startedMs);
    if (outcome.type === "succeeded") options.onSettled?.(work.name, "finished");
    finish(kept, { item, outcome });
    start();
  }

  function finish(kept: KeptLease, one: Done): void {
    finished.push(kept);
    done.push(one);
    poke();
  }

  const nameOf = (item: Claimed) => lanes.get(item.lane)?.name ?? "";

  poke();
  return {
    wake() {
      woken = true;
      poke();
    },
    get inFlight() {
      return running;
    },
    async stop() {
      if (stopping.signal.aborted) return;
      const over = new Promise<void>((resolve) => {
        closed = resolve;
      });
      stopping.abort();
      const timer = setTimeout(() => aborting.abort(), options.graceMs);
      // What does not stop for its signal is left to its lease.
      const hard = setTimeout(() => closed(), options.graceMs + toMilliseconds(options.leaseUs));
      poke();
      await over;
      clearTimeout(timer);
      clearTimeout(hard);
      keeper.swap(finished.splice(0), []);
    },
  };
}

/** Of the way to the database or its load, and of no item: locks and statements that ran out of time are, too. */
function passes(error: unknown): boolean {
  return isHoldfastError(error, "unavailable") || timeouts.has(sqlstateOf(error) ?? "");
}
const timeouts: ReadonlySet<string> = new Set(["55P03", "57014", "25P04"]);
