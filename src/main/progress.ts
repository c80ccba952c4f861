import type { Lookout, Topic } from "../core/lookout.ts";
import { monotonicMs } from "../core/monotonic.ts";
import type { Controller } from "../executions/controller.ts";
import type { LoopProgress } from "../http/health.ts";

/** A loop that has not turned, or a database that has not answered, for this long is stuck. */
export const stuckMs = 30_000;

export function loopProgress(name: string, at: number | null): LoopProgress {
  const age = at === null ? null : Math.round(monotonicMs() - at);
  return {
    name,
    progressing: age !== null && age < stuckMs,
    detail: age === null ? "has not turned yet" : `turned ${age} ms ago`,
  };
}

export interface ClaimWatch {
  /** Milliseconds since something to do was seen and the loop has not turned. */
  overdueMs(): number;
  stop(): void;
}

/** The same of the loop that claims attempts. */
export function watchClaims(
  lookout: Pick<Lookout, "on">,
  kind: string,
  controller: Pick<Controller, "turnedAt">,
): ClaimWatch {
  return watchTurns(lookout, `due:${kind}`, controller);
}

/**
 * Whether a loop follows what it is told. It rests for as long as there is nothing to do, so the time of its last
 * turn says nothing by itself.
 */
export function watchTurns(
  lookout: Pick<Lookout, "on">,
  topic: Topic,
  loop: { readonly turnedAt: number },
): ClaimWatch {
  let seenAt: number | null = null;
  const open = () => (seenAt !== null && loop.turnedAt < seenAt ? seenAt : null);
  const stop = lookout.on(topic, () => {
    seenAt = open() ?? monotonicMs();
  });
  return {
    overdueMs() {
      const since = open();
      return since === null ? 0 : monotonicMs() - since;
    },
    stop,
  };
}
