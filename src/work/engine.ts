import { setTimeout as delay } from "node:timers/promises";
import { isHoldfastError } from "../core/errors.ts";
import { monotonicMs } from "../core/monotonic.ts";
import type { KeptOne } from "../core/postgres/lease-keeper.ts";
import { toMilliseconds } from "../core/time.ts";
import { permittable } from "./choice.ts";
import type { Engine, EngineOptions } from "./engine-options.ts";
import { handle } from "./handler.ts";
import { isUnknown, keepLate } from "./late.ts";
import { lookMax, openLines, takeNoneMs } from "./lines.ts";
import { halves, type LostTurn, readLost } from "./lost-turn.ts";
import { pacing } from "./pacing.ts";
import { Permits } from "./permits.ts";
import { openReconciling } from "./reconciling.ts";
import { tally } from "./tally.ts";
import {
  type Claimed,
  type Claims,
  claimWork,
  type Done,
  leaseOf,
  type Outcome,
  type Permitted,
  recoverWork,
  type Take,
  type Turn,
  turnWork,
} from "./turn.store.ts";

/** What waits to be settled. Its lease is kept until then. */
interface Finished extends Done {
  readonly kept: KeptOne | null;
}

/** A permit with the lease that it runs under. */
interface Ready {
  readonly item: Permitted;
  readonly kept: KeptOne;
}

/** A turn that has no answer yet: how many items it has, and what it does with them. */
interface UnderWay {
  readonly part: "all" | "settle" | "take";
  readonly size: number;
}

const [claimMax, turnMax] = [500, 500];
/** While one turn is at the database this side prepares the next and runs what the one before permitted. */
const turnsMax = 2;
/** Two small turns cost the database more than one: each has its own commit, and its change. */
const besideMin = 128;
/** Of items that wait for a permit each: so many are taken by a turn that settles none, and more than these settled. */
const [apartMin, settleMin] = [8, 24];
/** Code that never pauses keeps the event loop no longer than this. */
const unbrokenMs = 10;
const retryFirstMs = 50;
const retryMaxMs = 2_000;

/**
 * The loop of one worker. What it has is in one of four places: claimed (no permit yet), ready (permitted, waits
 * for a free handler), running, done (waits for the next turn, which settles it). What happens while a turn is
 * under way goes into the next, so that turns are as large as the load makes them; a second one is sent meanwhile
 * when it is worth one. Where each item waits for a permit of its own, one turn permits while another one settles. No
 * item is in two of them.
 */
export function startEngine(options: EngineOptions): Engine {
  const { db, holder, keeper, lanes, concurrency } = options;
  const pace = pacing(concurrency);
  const stopping = new AbortController();
  const aborting = new AbortController();
  let claimed: Claimed[] = [];
  const ready: Ready[] = [];
  const done: Finished[] = [];
  const background = new Set<Promise<void>>();
  const lines = openLines(lanes);
  let turnCount = 0;
  let running = 0;
  const reconciling = openReconciling({
    ...options,
    stopping: stopping.signal,
    aborting: aborting.signal,
    follow,
  });
  /** Until the next try, while the database does not answer: longer each time. */
  let [turnPauseMs, claimPauseMs] = [retryFirstMs, retryFirstMs];
  const permits = new Permits();
  /** Turns that take and have no answer yet. What they took is in `permits` when they have. */
  const taking = new Set<Promise<unknown>>();
  /** Turns that took and whose answers were lost. Until that is read back, none takes: it would be taken for theirs. */
  let lostTakes = 0;
  let claiming = false;
  const turns: UnderWay[] = [];
  /** Permits that the turns under way have asked for. */
  let asked = 0;
  let [woken, rung] = [true, false];
  let scheduled = false;
  let starting = false;
  let closed = () => {};
  let ended = false;

  /** Many things happen in one round of the event loop; what they call for is looked at once, after it. */
  function poke(): void {
    if (scheduled || ended) return;
    scheduled = true;
    setImmediate(() => {
      scheduled = false;
      // All of it may have expired while this process stood still: then no turn comes that would leave it out.
      if ((claimed[0]?.heldUntilMs ?? Number.POSITIVE_INFINITY) <= monotonicMs()) forget([]);
      start();
      guess();
      if (!claiming && wantsClaim()) follow(claim());
      for (let part = nextTurn(); part !== null; part = nextTurn()) follow(turn(part));
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

  const givesBack = () => stopping.signal.aborted && claimed.length + reconciling.waiting + ready.length > 0;
  const idle = () =>
    stopping.signal.aborted &&
    running + ready.length + claimed.length + reconciling.waiting + done.length + background.size === 0;

  /** New work is likely to be where the last was: a turn that takes it from there saves the look for it. */
  function guess(): void {
    if (!rung) return;
    rung = false;
    const rests = !claiming && turns.length === 0 && claimed.length + ready.length === 0;
    // With nothing to take, no turn would come that ends it.
    if (rests && lines.guess() && takeable(0) === 0) lines.drop(0);
  }

  function wantsClaim(): boolean {
    if (!woken || stopping.signal.aborted || claimed.length >= pace.lowWater()) return false;
    return lines.stale;
  }

  /** The first turn is sent for anything, another one beside it only when it is worth one. */
  function nextTurn(): UnderWay["part"] | null {
    const [other] = turns;
    if (turns.length >= turnsMax || (other !== undefined && lines.guessing)) return null;
    if (givesBack()) return "all";
    const asking = choose().length;
    const takes = asking + takeable(asking);
    if (lines.from.length > 0 && !lines.ahead) {
      if (takes >= apartMin && (other === undefined ? done.length >= apartMin : other.part === "settle"))
        return "take";
      if (other?.part === "take" && done.length > Math.max(settleMin, concurrency)) return "settle";
    }
    const size = done.length + takes;
    if (other === undefined) return size > 0 ? "all" : null;
    return size >= Math.max(besideMin, other.size / 2) ? "all" : null;
  }

  async function claim(): Promise<void> {
    claiming = true;
    woken = false;
    const most = lines.from.length === 0 ? claimMax : Math.min(lookMax, 2 * concurrency);
    const limit = Math.min(most, pace.claimSize(claimMax));
    const startedMs = monotonicMs();
    try {
      const claims = await claimWork(db, {
        holder,
        lanes: [...lanes.keys()],
        limit,
        leaseUs: options.leaseUs,
      });
      const taken = claims.claimed.length + claims.lost.length + claims.toReconcile.length;
      pace.claimed(taken, limit);
      claimPauseMs = retryFirstMs;
      claimed.push(...claims.claimed);
      lines.seen(claims, turnCount, startedMs);
      // A full batch: there is more. What was taken may also stand in the way of more.
      woken ||= taken >= limit || claims.lost.length > 0;
      await attend(claims);
    } catch (error) {
      lines.drop(0);
      options.onError(error, "work could not be claimed");
      if (isHoldfastError(error, "deployment_fenced")) options.onRefused?.("", "claim", error.code);
      woken = true;
      await delay(claimPauseMs, undefined, { signal: stopping.signal }).catch(() => undefined);
      claimPauseMs = Math.min(claimPauseMs * 2, retryMaxMs);
    } finally {
      claiming = false;
    }
  }

  /** Of what is claimed, what the next turn asks permits for. */
  function choose(): Claimed[] {
    if (stopping.signal.aborted || claimed.length === 0) return [];
    const taken = running + ready.length + asked;
    const standing = { lanes, concurrency, ahead: pace.ahead(), taken, max: turnMax };
    return permittable(claimed, standing, monotonicMs());
  }

  /** How many items it may take from the lines beside those: half of the room, so that the next turn has as much. */
  function takeable(asking: number): number {
    if (lines.from.length === 0 || stopping.signal.aborted || claimed.length > asking || lostTakes > 0)
      return 0;
    const whole = concurrency + (lines.ahead ? pace.ahead() : 0);
    const room = whole - (running + ready.length + asked + asking);
    const share = Math.max(besideMin, Math.ceil(whole / turnsMax));
    return Math.max(0, Math.min(turnMax - asking, room, share));
  }

  async function attend({ lost, toReconcile }: Claims): Promise<void> {
    const recover = async (items: readonly Claimed[]) => {
      await recoverWork(db, items);
      for (const { epoch } of items) permits.delete(epoch);
    };
    if (lost.length > 0) {
      await recover(lost).catch(async () => {
        // One that can't be decided must not keep the others waiting.
        for (const item of lost) {
          await recover([item]).catch((error: unknown) =>
            options.onError(error, "lost work could not be recovered"),
          );
        }
      });
    }
    reconciling.add(toReconcile);
  }

  async function turn(part: UnderWay["part"]): Promise<void> {
    const settle = part === "take" ? [] : done.splice(0, turnMax);
    if (stopping.signal.aborted) settle.push(...givenBack());
    const next = part === "settle" ? [] : choose();
    if (part !== "settle") forget(next);
    const limit = part === "settle" ? 0 : takeable(next.length);
    const take = limit > 0 ? { lines: lines.from, limit, leaseUs: options.leaseUs } : null;
    const number = (turnCount += 1);
    const self = { part, size: settle.length + next.length + limit };
    turns.push(self);
    asked += next.length + limit;
    for (const { epoch } of next) permits.add(epoch);
    const startedMs = monotonicMs();
    try {
      const answered = turnWork(db, holder, settle, next, take).then((result) => {
        for (const { epoch } of result.permitted) permits.add(epoch);
        return result;
      });
      if (take !== null) taking.add(answered);
      const result = await answered.finally(() => {
        asked -= next.length + limit;
        taking.delete(answered);
      });
      if (take !== null) lines.goOn(result, number);
      woken ||= take !== null;
      pace.turned(monotonicMs() - startedMs);
      turnPauseMs = retryFirstMs;
      if (settle.length > 0) options.onTurn?.();
      await accept(result, settle);
    } catch (error) {
      if (take !== null) {
        lines.drop(takeNoneMs);
        woken = true;
      }
      await salvage(settle, next, error, take);
    } finally {
      turns.splice(turns.indexOf(self), 1);
    }
  }

  function forget(next: readonly Claimed[]): void {
    const now = monotonicMs();
    let place = 0;
    claimed = claimed.filter((item) => {
      // What was chosen stands in the same order.
      if (item === next[place]) {
        place += 1;
        return false;
      }
      if (item.heldUntilMs > now) return true;
      options.onRefused?.(nameOf(item), "claim", "expired");
      return false;
    });
    if (claimed.length < pace.lowWater()) poke();
  }

  function givenBack(): Finished[] {
    const outcome = { type: "returned" } as const;
    return [
      ...[...claimed.splice(0), ...reconciling.giveUp()].map((item) => ({
        item: { ...item, attempt: 0, circuitKey: null },
        outcome,
        kept: null,
      })),
      ...ready.splice(0).map(({ item, kept }) => ({ item, outcome, kept })),
    ];
  }

  async function accept(result: Turn, settled: readonly Finished[]): Promise<void> {
    for (const { kept, item } of settled) {
      permits.delete(item.epoch);
      kept?.drop();
    }
    const kept = keeper.holdAll(result.permitted.map((item) => leaseOf(item, holder)));
    for (const [place, item] of result.permitted.entries()) {
      const one = kept[place];
      if (one !== undefined) ready.push({ item, kept: one });
    }
    start();
    if (options.onSettled !== undefined)
      for (const [one, what] of tally(settled, result)) options.onSettled(nameOf(one.item), what);
    for (const { item, what } of result.passed) {
      permits.delete(item.epoch);
      options.onRefused?.(nameOf(item), "permit", what);
    }
    for (const one of result.unmatched) await quarantine(one);
  }

  async function quarantine(one: Done): Promise<void> {
    let what = await keepLate(options, one);
    if (what === "held" && isUnknown(one.outcome)) what = "unknown";
    if (what !== "held" && one.outcome.type !== "returned") options.onSettled?.(nameOf(one.item), what);
    if (what === "quarantined") options.onRefused?.(nameOf(one.item), "completion", what);
    if (what !== "held") return;
    permits.add(one.item.epoch);
    done.push({ ...one, kept: null });
  }

  /**
   * A turn that threw settled nothing, or everything and only the answer was lost. Sent again, what was settled
   * matches nothing and is read back; what was permitted is looked at before it runs. A turn that the database
   * refuses is halved until the one row that it refuses is alone.
   */
  async function salvage(
    settle: readonly Finished[],
    next: readonly Claimed[],
    error: unknown,
    take: Take | null = null,
  ): Promise<void> {
    if (isHoldfastError(error, "unavailable")) {
      options.onError(error, "a turn was not answered");
      done.unshift(...settle);
      const took = take === null ? 0 : 1;
      lostTakes += took;
      return reread({ next: [...next], take }).finally(() => {
        lostTakes -= took;
      });
    }
    if (take !== null) {
      options.onError(error, "a turn was refused");
      return resend(settle, next);
    }
    if (settle.length + next.length <= 1) {
      options.onError(error, "one item of work was refused");
      if (isHoldfastError(error, "deployment_fenced"))
        options.onRefused?.("", settle.length > 0 ? "completion" : "permit", error.code);
      for (const { epoch } of next) permits.delete(epoch);
      const [one] = settle;
      // The effect has happened: that its result can't be stored does not make it a failure.
      if (one?.outcome.type === "succeeded" && one.outcome.result !== "") {
        done.push({ ...one, outcome: { type: "succeeded", result: "" } });
      } else if (one !== undefined) {
        leave(one, one.outcome.type === "returned" ? null : "dropped");
      }
      return;
    }
    for (const [left, right] of halves(settle, next)) await resend(left, right);
  }

  async function resend(settle: readonly Finished[], next: readonly Claimed[]): Promise<void> {
    try {
      await accept(await turnWork(db, holder, settle, next), settle);
    } catch (error) {
      await salvage(settle, next, error);
    }
  }

  /** Until the database answers. */
  async function reread(lost: LostTurn): Promise<void> {
    const beside = {
      permits,
      taking,
      unused: (item: Done["item"]) => void done.push({ item, outcome: { type: "returned" }, kept: null }),
      stillClaimed: (item: Claimed) => void claimed.unshift(item),
    };
    for (;;) {
      await delay(turnPauseMs);
      // Nobody waits any more, and the connections may be closed: it is left to its lease.
      if (ended) return;
      turnPauseMs = Math.min(turnPauseMs * 2, retryMaxMs);
      try {
        await readLost(db, holder, lost, beside);
        return;
      } catch (error) {
        if (isHoldfastError(error, "unavailable")) continue;
        // What it may have been given is left to its lease.
        options.onError(error, "permits could not be read back");
        return;
      }
    }
  }

  function start(): void {
    if (starting) return;
    starting = true;
    const startedMs = performance.now();
    let finished = 0;
    let place = 0;
    // What is ready when the engine stops is given back by its next turn.
    while (running < concurrency && !stopping.signal.aborted) {
      const one = ready[place];
      if (one === undefined) break;
      place += 1;
      if (run(one)) finished += 1;
      if (finished % 16 === 15 && performance.now() - startedMs > unbrokenMs) {
        poke();
        break;
      }
    }
    ready.splice(0, place);
    starting = false;
    if (finished > 0) pace.served((performance.now() - startedMs) / finished);
  }

  /** True when it has finished already. */
  function run({ item, kept }: Ready): boolean {
    const work = lanes.get(item.lane);
    if (work === undefined || kept.lost || item.startByMs <= monotonicMs()) {
      done.push({ item, outcome: { type: "returned" }, kept });
      poke();
      return false;
    }
    running += 1;
    const signals = () => [kept.signal, aborting.signal];
    const outcome = handle(work, item, signals, (error, what) =>
      options.onError(error, `the result of ${work.name} ${item.id} ${what}`),
    );
    if (!(outcome instanceof Promise)) {
      ran({ item, kept }, outcome);
      return true;
    }
    const startedMs = performance.now();
    void outcome.then((late) => {
      ran({ item, kept }, late);
      pace.served(performance.now() - startedMs);
      start();
    });
    return false;
  }

  function ran({ item, kept }: Ready, outcome: Outcome): void {
    running -= 1;
    const one = { item, outcome, kept };
    if (!isUnknown(outcome)) done.push(one);
    else {
      leave(one, kept.lost ? null : "unknown");
      if (kept.lost) follow(quarantine(one));
    }
    poke();
  }

  /** Nothing more can be said of it. No longer renewed, it goes where an open permit goes. */
  function leave({ item, kept }: Pick<Finished, "item" | "kept">, what: string | null): void {
    if (what !== null) options.onSettled?.(nameOf(item), what);
    permits.leave(item.epoch);
    kept?.drop();
  }

  const nameOf = (item: Claimed) => lanes.get(item.lane)?.name ?? "";

  poke();
  return {
    wake() {
      woken = true;
      poke();
    },
    ring() {
      rung = woken = true;
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
      ended = true;
      clearTimeout(timer);
      clearTimeout(hard);
    },
  };
}
