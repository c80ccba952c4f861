import { monotonicMs } from "../core/monotonic.ts";
import type { WorkDefinition } from "./define.ts";
import { permitsAhead } from "./safety.ts";
import type { Cursor } from "./turn.store.ts";

/** The lines that turns take from for themselves, without a claim for each item: those in which a claim saw more. */
export interface Lines {
  readonly from: readonly Cursor[];
  /** Whether their items may be permitted ahead of a free handler: all of them, or none. */
  readonly ahead: boolean;
  /** One turn looks whether something new is in them: no other takes from them meanwhile. */
  readonly guessing: boolean;
  /** A claim is needed to look for others, and for what was passed over. */
  readonly stale: boolean;
  /** What a claim saw that began at an instant, after so many turns. */
  seen(what: Seen, turn: number, startedMs: number): void;
  /** Of two turns under way the later one has seen more. */
  goOn(what: Seen, turn: number): void;
  /**
   * Something new is somewhere: the lines that were emptied last are taken from again, where they ended, and a claim
   * waits for that. False when there are none to try.
   */
  guess(): boolean;
  /** Nothing is taken for so long. */
  drop(forMs: number): void;
}

interface Seen {
  readonly cursors: readonly Cursor[];
  readonly emptied: readonly Cursor[];
}

/** While turns take for themselves, a claim is only made to see other lines, and what was passed over. */
export const lookMax = 50;
/** A turn that was refused with what it would take is sent without; so long none takes anything. */
export const takeNoneMs = 5_000;
/** How long they are taken from: what is due in others waits no longer. A look is worth more the longer it took. */
const freshMs = 100;
const worth = 20;
/** So many emptied lines are known, until so many guesses in a row found nothing: rings are for more than Work. */
const emptiedMax = 20;
const missesMax = 4;

export function openLines(lanes: ReadonlyMap<string, WorkDefinition>): Lines {
  let from: readonly Cursor[] = [];
  let emptied: readonly Cursor[] = [];
  let guessing = false;
  let misses = 0;
  let [untilMs, noneUntilMs, saidBy] = [0, 0, 0];
  const aheadIn = (lane: string) => permitsAhead[lanes.get(lane)?.safety ?? "manual_resolution"];

  /** Lines whose items may be permitted ahead of a free handler are never mixed with others. */
  function alike(cursors: readonly Cursor[]): boolean {
    return new Set(cursors.map(([lane]) => aheadIn(lane))).size === 1;
  }

  /** The latest of each line, the latest lines first. */
  function remember(ended: readonly Cursor[]): void {
    if (ended.length === 0) return;
    misses = 0;
    const places = new Map<string, Cursor>();
    for (const cursor of [...ended, ...emptied]) {
      const name = cursor.slice(0, 3).join(" ");
      if (!places.has(name)) places.set(name, cursor);
    }
    emptied = [...places.values()].slice(0, emptiedMax);
  }

  return {
    get from() {
      return from;
    },
    get ahead() {
      return from.length > 0 && aheadIn(from[0]?.[0] ?? "");
    },
    get guessing() {
      return guessing;
    },
    get stale() {
      return !guessing && (from.length === 0 || untilMs <= monotonicMs());
    },
    seen({ cursors, emptied: ended }, turn, startedMs) {
      const now = monotonicMs();
      from = now >= noneUntilMs && alike(cursors) ? cursors : [];
      untilMs = now + Math.max(freshMs, worth * (now - startedMs));
      saidBy = turn;
      remember(ended);
    },
    goOn({ cursors, emptied: ended }, turn) {
      remember(ended);
      if (from.length === 0 || turn < saidBy) return;
      guessing = false;
      from = cursors;
      saidBy = turn;
    },
    guess() {
      if (from.length > 0 || misses >= missesMax || monotonicMs() < noneUntilMs || !alike(emptied))
        return false;
      misses += 1;
      [from, guessing] = [emptied.toSorted(([, a], [, b]) => a - b), true];
      return true;
    },
    drop(forMs) {
      [from, guessing] = [[], false];
      noneUntilMs = monotonicMs() + forMs;
    },
  };
}
