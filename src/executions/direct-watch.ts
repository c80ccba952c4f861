import { HoldfastError } from "../core/errors.ts";
import { monotonicMs } from "../core/monotonic.ts";
import { type Instant, toMilliseconds } from "../core/time.ts";
import { type Claimant, type DirectClaim, renewClaim } from "./direct-claim.store.ts";

/** Keeps one claim alive, and knows when its job has to end before its time. */
export interface DirectWatch {
  /** Aborts when the claim is lost, or the claimant stops. */
  readonly gone: AbortSignal;
  /** Aborts, too, when the job should end: `end` says why. */
  readonly over: AbortSignal;
  readonly end: "cancelled" | "deadline" | null;
  /** Throws unless the claim is held now. Before each thing that is done outside. */
  check(): void;
  endAt(deadline: Instant): void;
  endNow(reason: "cancelled"): void;
  stop(): void;
}

export function watchClaim(options: {
  readonly claimant: Claimant;
  readonly claim: DirectClaim;
  readonly stopping: AbortSignal;
  /** Calls back on each change of the job, until the returned function is called. */
  readonly changes: (job: string, onChange: () => void) => () => void;
  readonly onError: (error: unknown) => void;
}): DirectWatch {
  const { claimant, claim } = options;
  const lost = new AbortController();
  const ending = new AbortController();
  const gone = AbortSignal.any([lost.signal, options.stopping]);
  let { now, heldUntilMs } = claim;
  let end: DirectWatch["end"] = null;
  let deadlineTimer: NodeJS.Timeout | undefined;
  let renewing = false;
  let again = false;

  function endFor(reason: "cancelled" | "deadline"): void {
    end ??= reason;
    ending.abort();
  }

  async function renewOnce(): Promise<void> {
    const renewed = await renewClaim(claimant, claim.job);
    if (renewed === null) return lost.abort(new HoldfastError("fenced", "another has the claim"));
    ({ now, heldUntilMs } = renewed);
    if (renewed.cancelled) endFor("cancelled");
  }

  /** One at a time; a change that comes while one is under way may be younger than its answer. */
  async function renew(): Promise<void> {
    again = true;
    if (renewing) return;
    renewing = true;
    while (again && !gone.aborted) {
      again = false;
      await renewOnce().catch(options.onError);
    }
    renewing = false;
  }

  const every = setInterval(() => void renew(), toMilliseconds(claimant.claimUs) / 3);
  const unsubscribe = options.changes(claim.job, () => void renew());
  // What was asked between the claim and the subscription.
  void renew();

  return {
    gone,
    over: AbortSignal.any([gone, ending.signal]),
    get end() {
      return end;
    },
    check() {
      gone.throwIfAborted();
      if (monotonicMs() < heldUntilMs) return;
      throw new HoldfastError("fenced", "the claim ran out before it was renewed");
    },
    endAt(deadline) {
      clearTimeout(deadlineTimer);
      deadlineTimer = setTimeout(() => endFor("deadline"), toMilliseconds(deadline - now));
    },
    endNow: endFor,
    stop() {
      clearInterval(every);
      clearTimeout(deadlineTimer);
      unsubscribe();
      lost.abort(new HoldfastError("fenced", "nobody attends to it any more"));
    },
  };
}
