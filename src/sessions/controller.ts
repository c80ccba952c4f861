import { isHoldfastError } from "../core/errors.ts";
import type { IncarnationId, TenantId } from "../core/ids.ts";
import { claimLeases, returnLease, underLease } from "../core/lease.store.ts";
import type { HeldLease } from "../core/lease.ts";
import type { Lookout } from "../core/lookout.ts";
import { type Loop, startLoop } from "../core/loop.ts";
import { monotonicMs } from "../core/monotonic.ts";
import type { LeaseKeeper } from "../core/postgres/lease-keeper.ts";
import type { Microseconds } from "../core/time.ts";
import { activationKind } from "./activation.store.ts";
import { attendActivation, attendSession } from "./attend.ts";
import type { SessionContext } from "./context.ts";
import { sessionKind } from "./session-row.store.ts";

/** Lease kinds that a controller of sessions waits for. */
export const sessionControllerKinds = [sessionKind, activationKind] as const;

export interface SessionController {
  /** Sessions, and activations that are cleaned, that it attends to now. */
  readonly attending: number;
  /** When its claiming loops last turned, on the monotonic clock in milliseconds. For readiness. */
  readonly turnedAt: number;
  /** Takes nothing more, leaves what it has where it is, and gives the leases back for another to take at once. */
  stop(): Promise<void>;
}

export interface SessionControllerOptions extends SessionContext {
  readonly holder: IncarnationId;
  readonly lookout: Lookout;
  readonly keeper: LeaseKeeper;
  /** Calls back on each change below a root, until the returned function is called. */
  readonly changes: (tenant: TenantId, root: string, onChange: () => void) => () => void;
  readonly leaseUs: Microseconds;
  /** Sessions driven at once by this process, and as many activations cleaned. */
  readonly sessionsMax: number;
}

type Attend = (lease: HeldLease, signal: AbortSignal) => Promise<"done" | "left">;

/**
 * Drives sessions that have something to do, many side by side, and cleans up after activations. Any number of these
 * run on one store: a lease says which of them attends to which.
 */
export function startSessionController(options: SessionControllerOptions): SessionController {
  const { lookout, sessionsMax } = options;
  const stopping = new AbortController();
  const attended = {
    session: new Map<string, Promise<void>>(),
    activation: new Map<string, Promise<void>>(),
  };
  let turnedAt = monotonicMs();

  function onError(error: unknown): void {
    options.log("error", "a session controller's loop failed and goes on", {
      error: error instanceof Error ? error.message : String(error),
    });
  }

  function attendTo(lease: HeldLease, all: Map<string, Promise<void>>, attend: Attend): void {
    const { keeper } = options;
    const key = `${lease.tenant}/${lease.resource}/${lease.epoch}`;
    const held = keeper.hold(lease);
    const ended = attend(lease, AbortSignal.any([held.signal, stopping.signal]))
      .then(async (result) => {
        keeper.drop(lease);
        if (result === "left" && !held.signal.aborted) await giveBack(lease);
      })
      .catch((error: unknown) => {
        keeper.drop(lease);
        if (!isHoldfastError(error, "fenced")) onError(error);
      })
      .finally(() => {
        all.delete(key);
        freed.abort();
        freed = new AbortController();
      });
    all.set(key, ended);
  }
  /** Aborts when something is no longer attended to: there is room again. */
  let freed = new AbortController();

  function giveBack(lease: HeldLease): Promise<void> {
    return underLease(options.db, lease, "returnLease", (tx) => returnLease(tx, lease, tx.now));
  }

  /** Takes what is due of one kind: new work, and what a controller left or died over. */
  function claiming(kind: "session" | "activation", attend: Attend): Loop {
    const all = attended[kind];
    const room = () => sessionsMax - all.size;
    let since = 0;
    return startLoop({
      onError,
      async turn(signal) {
        turnedAt = monotonicMs();
        const seen = await lookout.wait(`due:${kind}`, signal, { since });
        since = seen.serial;
        for (const queue of seen.queues.filter((name) => options.runtimes.has(name))) {
          if (room() <= 0) {
            // What is due stays due: look again when there is room.
            await aborted(AbortSignal.any([signal, freed.signal]));
            since = 0;
            return;
          }
          const { holder, leaseUs } = options;
          const claim = { kind, queue, holder, limit: room(), quota: room(), leaseUs };
          for (const lease of await claimLeases(options.db, claim)) attendTo(lease, all, attend);
        }
      },
    });
  }

  const sessions = claiming(sessionKind, (lease, signal) =>
    attendSession(options, lease, signal, (root, onChange) => options.changes(lease.tenant, root, onChange)),
  );
  const activations = claiming(activationKind, (lease, signal) => attendActivation(options, lease, signal));

  return {
    get attending() {
      return attended.session.size + attended.activation.size;
    },
    get turnedAt() {
      return turnedAt;
    },
    async stop() {
      stopping.abort();
      await Promise.all([sessions.stop(), activations.stop()]);
      await Promise.all([...attended.session.values(), ...attended.activation.values()]);
    },
  };
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
