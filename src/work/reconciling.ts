import { monotonicMs } from "../core/monotonic.ts";
import type { EngineOptions } from "./engine-options.ts";
import { reconcileOne } from "./reconcile.ts";
import { type Claimed, leaseOf } from "./turn.store.ts";

const waitingMax = 500;

/** The reconcilers of one worker: as many at a time as handlers, each under the lease of its item. */
export interface Reconciling {
  /** Claimed, and waiting for the reconciler of their version. */
  readonly waiting: number;
  /** What finds no place waits for its lease to end, and is claimed again. */
  add(items: readonly Claimed[]): void;
  /** What waits, to be given back. */
  giveUp(): readonly Claimed[];
}

export function openReconciling(
  options: Pick<EngineOptions, "db" | "holder" | "keeper" | "lanes" | "concurrency" | "onError"> & {
    readonly stopping: AbortSignal;
    readonly aborting: AbortSignal;
    readonly follow: (task: Promise<void>) => void;
  },
): Reconciling {
  const { db, holder, keeper, lanes, concurrency, stopping, aborting } = options;
  const waiting: Claimed[] = [];
  let running = 0;

  function next(): void {
    while (running < concurrency && !stopping.aborted) {
      const item = waiting.shift();
      if (item === undefined) return;
      if (item.heldUntilMs <= monotonicMs()) continue;
      running += 1;
      options.follow(
        reconcile(item).finally(() => {
          running -= 1;
          next();
        }),
      );
    }
  }

  async function reconcile(item: Claimed): Promise<void> {
    const work = lanes.get(item.lane);
    if (work === undefined) return;
    const [kept] = keeper.holdAll([leaseOf(item, holder)]);
    if (kept === undefined) return;
    try {
      await reconcileOne({ db, holder, work, item, signal: AbortSignal.any([kept.signal, aborting]) });
    } catch (error) {
      options.onError(error, "work could not be reconciled");
    } finally {
      kept.drop();
    }
  }

  return {
    get waiting() {
      return waiting.length;
    },
    add(items) {
      waiting.push(...items.slice(0, waitingMax - waiting.length));
      next();
    },
    giveUp: () => waiting.splice(0),
  };
}
