import { isHoldfastError } from "../core/errors.ts";
import type { IncarnationId, JobId, TenantId } from "../core/ids.ts";
import { claimLeases, returnLease } from "../core/lease.store.ts";
import type { HeldLease } from "../core/lease.ts";
import type { Lookout } from "../core/lookout.ts";
import { type Loop, startLoop } from "../core/loop.ts";
import { monotonicMs } from "../core/monotonic.ts";
import type { LeaseKeeper } from "../core/postgres/lease-keeper.ts";
import { type Microseconds, seconds } from "../core/time.ts";
import {
  type Admission,
  claimWaiting,
  postponeAdmission,
  readWaiting,
  refuseAdmission,
  returnAdmission,
} from "./admission.store.ts";
import { executionKind, startExecution, underLease } from "./attempt.store.ts";
import { attend } from "./attend.ts";
import type { ControllerContext } from "./context.ts";
import { admissionKind } from "./job.store.ts";
import { planOf } from "./plan.ts";

/** Lease kinds that a controller waits for. */
export const controllerKinds = [executionKind, admissionKind] as const;

export interface Controller {
  /** Attempts that it attends to now. */
  readonly attending: number;
  /** When its claiming loops last turned, on the monotonic clock in milliseconds. For readiness. */
  readonly turnedAt: number;
  /** Takes nothing more, leaves what it has where it is, and gives the leases back for another to take at once. */
  stop(): Promise<void>;
}

export interface ControllerOptions extends ControllerContext {
  readonly holder: IncarnationId;
  readonly lookout: Lookout;
  readonly keeper: LeaseKeeper;
  /** Calls back on each change of a job, until the returned function is called. */
  readonly changes: (tenant: TenantId, job: JobId, onChange: () => void) => () => void;
  /** Which runtime new attempts are planned for. */
  readonly runtime: string;
  readonly leaseUs: Microseconds;
  /** Attempts attended to at once by this process. */
  readonly attemptsMax: number;
}

/** A job that can't be started for a reason of its own is tried again after this long. */
const startAgainUs = seconds(10);

/**
 * Starts waiting jobs as slots come free and drives attempts, several at a time (E16). Any number of these run
 * on one store: a lease says which of them attends to which attempt.
 */
export function startController(options: ControllerOptions): Controller {
  const { db, holder, lookout, keeper, leaseUs } = options;
  const stopping = new AbortController();
  const attended = new Map<string, Promise<void>>();
  let turnedAt = monotonicMs();

  function attendTo(lease: HeldLease): void {
    const held = keeper.hold(lease);
    const signal = AbortSignal.any([held.signal, stopping.signal]);
    const ended = attend(options, lease, signal, (job, onChange) =>
      options.changes(lease.tenant, job, onChange),
    )
      .then(async (result) => {
        keeper.drop(lease);
        if (result === "left" && !held.signal.aborted) await giveBack(lease);
      })
      .catch((error: unknown) => {
        keeper.drop(lease);
        if (!isHoldfastError(error, "fenced")) onError(error);
      })
      .finally(() => attended.delete(key(lease)));
    attended.set(key(lease), ended);
  }

  const key = (lease: HeldLease) => `${lease.tenant}/${lease.resource}/${lease.epoch}`;

  function giveBack(lease: HeldLease): Promise<void> {
    return underLease(db, lease, "returnLease", async (tx) => {
      await returnLease(tx, lease, tx.now);
    });
  }

  function onError(error: unknown): void {
    options.log("error", "a controller loop failed and goes on", {
      error: error instanceof Error ? error.message : String(error),
    });
  }

  const room = () => options.attemptsMax - attended.size;

  /** Attempts that nobody attends to: new ones of a dead starter, and those whose controller died. */
  let sinceDue = 0;
  const leases: Loop = startLoop({
    onError,
    async turn(signal) {
      turnedAt = monotonicMs();
      const seen = await lookout.wait(`due:${executionKind}`, signal, { since: sinceDue });
      sinceDue = seen.serial;
      for (const queue of seen.queues.filter((name) => options.runtimes.has(name))) {
        if (room() <= 0) return;
        const claimed = await claimLeases(db, {
          kind: executionKind,
          queue,
          holder,
          limit: room(),
          quota: room(),
          leaseUs,
        });
        for (const lease of claimed) attendTo(lease);
      }
    },
  });

  let sinceWaiting = 0;
  const admissions: Loop = startLoop({
    onError,
    async turn(signal) {
      const seen = await lookout.wait(`due:${admissionKind}`, signal, { since: sinceWaiting });
      sinceWaiting = seen.serial;
      for (const pool of seen.queues) {
        if (room() <= 0) return;
        const waiting = await claimWaiting(db, { pool, holder, limit: room(), leaseUs });
        for (const begun of await Promise.allSettled(waiting.map(begin))) {
          if (begun.status === "rejected") onError(begun.reason);
        }
      }
    },
  });

  async function begin(admission: Admission): Promise<void> {
    try {
      const { job, spec } = await readWaiting(db, admission);
      const plan = planOf(spec, options.runtime);
      const ordinal = job.attempts + 1;
      const { tenant } = admission;
      const started = await startExecution(db, {
        tenant,
        job: admission.job,
        ordinal,
        plan,
        admission,
        leaseUs,
      });
      if (started.lease !== null) attendTo(started.lease);
    } catch (error) {
      // Cancelled meanwhile, or taken by another: nothing to do.
      if (isHoldfastError(error, "fenced") || isHoldfastError(error, "not_found")) return;
      if (isHoldfastError(error, "invalid_request") || isHoldfastError(error, "attempts_exhausted")) {
        await refuseAdmission(db, admission, { code: "plan_refused", message: error.detail });
        return;
      }
      // Not the job's fault: it keeps its place.
      if (isHoldfastError(error, "no_slot") || isHoldfastError(error, "unavailable")) {
        await returnAdmission(db, admission);
        return;
      }
      // Something of its own that only time may mend: others go first, and it is not tried at once again.
      onError(error);
      await postponeAdmission(db, admission, startAgainUs);
    }
  }

  return {
    get attending() {
      return attended.size;
    },
    get turnedAt() {
      return turnedAt;
    },
    async stop() {
      stopping.abort();
      await Promise.all([leases.stop(), admissions.stop()]);
      await Promise.all(attended.values());
    },
  };
}
