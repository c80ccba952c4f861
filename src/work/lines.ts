import { monotonicMs } from "../core/monotonic.ts";
import type { WorkDefinition } from "./define.ts";
import { permitsAhead } from "./safety.ts";
import type { Cursor } from "./turn.store.ts";

/** The lines that turns take from for themselves, without a claim for each item: those in which a claim saw more. */
export interface Lines {
  readonly from: readonly Cursor[];
  /** Whether their items may be permitted ahead of a free handler: all of them, or none. */
  readonly ahead: boolean;
  /** A claim is needed to look for others, and for what was passed over. */
  readonly stale: boolean;
  /** What a claim saw that began at an instant, after so many turns. */
  seen(cursors: readonly Cursor[], turn: number, startedMs: number): void;
  /** Of two turns under way the later one has seen more. */
  goOn(cursors: readonly Cursor[], turn: number): void;
  /** Nothing is taken for so long. */
  drop(forMs: number): void;
}

/** While turns take for themselves, a claim is only made to see other lines, and what was passed over. */
export const lookMax = 50;
/** A turn that was refused with what it would take is sent without; so long none takes anything. */
export const takeNoneMs = 5_000;
/** How long they are taken from: what is due in others waits no longer. A look is worth more the longer it took. */
const freshMs = 100;
const worth = 20;

export function openLines(lanes: ReadonlyMap<string, WorkDefinition>): Lines {
  let from: readonly Cursor[] = [];
  let [untilMs, noneUntilMs, saidBy] = [0, 0, 0];
  const aheadIn = (lane: string) => permitsAhead[lanes.get(lane)?.safety ?? "manual_resolution"];
  return {
    get from() {
      return from;
    },
    get ahead() {
      return from.length > 0 && aheadIn(from[0]?.[0] ?? "");
    },
    get stale() {
      return from.length === 0 || untilMs <= monotonicMs();
    },
    seen(cursors, turn, startedMs) {
      const now = monotonicMs();
      const alike = new Set(cursors.map(([lane]) => aheadIn(lane))).size === 1;
      from = alike && now >= noneUntilMs ? cursors : [];
      untilMs = now + Math.max(freshMs, worth * (now - startedMs));
      saidBy = turn;
    },
    goOn(cursors, turn) {
      if (from.length === 0 || turn < saidBy) return;
      from = cursors;
      saidBy = turn;
    },
    drop(forMs) {
      from = [];
      noneUntilMs = monotonicMs() + forMs;
    },
  };
}
