import { setTimeout as delay } from "node:timers/promises";
import { isHoldfastError } from "../core/errors.ts";
import type { IncarnationId } from "../core/ids.ts";
import type { HeldLease } from "../core/lease.ts";
import type { Lookout } from "../core/lookout.ts";
import { startLoop } from "../core/loop.ts";
import { monotonicMs } from "../core/monotonic.ts";
import {
  beginTry,
  claimPublications,
  publicationKind,
  returnPublication,
  type Settling,
  settlePublication,
} from "../core/outbox.store.ts";
import type { PublicationState } from "../core/outbox.ts";
import type { LeaseKeeper } from "../core/postgres/lease-keeper.ts";
import type { Database } from "../core/postgres/transition.ts";
import { type Microseconds, microseconds, seconds } from "../core/time.ts";
import { type DeliveryBounds, deliveryBounds, openPlaces } from "./bounds.ts";
import { readDue, type Target } from "./delivery.store.ts";
import { type Sender, send } from "./send.ts";

export interface Publisher {
  /** Deliveries that are under way in this process. */
  readonly delivering: number;
  /** When the claiming loop last turned, on the monotonic clock in milliseconds. For readiness. */
  readonly turnedAt: number;
  /** Takes nothing more, lets what is under way end for a while, and gives the rest back for another to take. */
  stop(): Promise<void>;
}

export interface PublisherOptions extends Sender {
  readonly db: Database;
  readonly holder: IncarnationId;
  readonly lookout: Lookout;
  readonly keeper: LeaseKeeper;
  readonly leaseUs: Microseconds;
  readonly bounds?: DeliveryBounds;
  readonly settling?: Settling;
  /** How long `stop` lets deliveries end by themselves. */
  readonly drainMs?: number;
  /** After each try, with what the publication is then. For counting; never throws. */
  readonly settled?: (state: PublicationState) => void;
  readonly log: (
    level: "warn" | "error",
    message: string,
    details: Readonly<Record<string, unknown>>,
  ) => void;
}

/** The longest that one try takes, when nothing else is said. */
export const deliveryTimeoutMs = 15_000;
const drainMsDefault = 5_000;
const now = seconds(0);

/** A destination that has its share is looked at again about when one of its calls has ended. */
const busyPause = () => microseconds(1_000_000n + BigInt(Math.floor(Math.random() * 1_000_000)));

/**
 * Delivers publications, many at a time, at least once each and under the same id (S8). Any number of these run on
 * one store: a lease says which of them delivers what, and what a dead one held is taken over (S12).
 */
export function startPublisher(options: PublisherOptions): Publisher {
  const { db, holder, lookout, keeper, leaseUs } = options;
  const places = openPlaces(options.bounds ?? deliveryBounds);
  const stopping = new AbortController();
  const underWay = new Set<Promise<void>>();
  let turnedAt = monotonicMs();

  function attendTo(lease: HeldLease): void {
    const held = keeper.hold(lease);
    const leave = places.enter(lease.tenant);
    const signal = AbortSignal.any([held.signal, stopping.signal]);
    const ended = attend(lease, signal)
      .catch(async (error: unknown) => {
        // Lost: another has it. Stopped: nobody knows how the try ended, so it is tried again, under the same id.
        if (held.signal.aborted || isHoldfastError(error, "fenced")) return;
        if (stopping.signal.aborted) return returnPublication(db, lease, now);
        onError(error);
      })
      .catch(onError)
      .finally(() => {
        keeper.drop(lease);
        leave();
        underWay.delete(ended);
      });
    underWay.add(ended);
  }

  async function attend(lease: HeldLease, signal: AbortSignal): Promise<void> {
    const { publication, target } = await readDue(db, lease);
    const leave = target === null ? () => undefined : places.enterOrigin(lease.tenant, originOf(target));
    if (leave === null) return returnPublication(db, lease, busyPause());
    try {
      signal.throwIfAborted();
      if ((await beginTry(db, lease, options.settling)) === "dead") {
        options.settled?.("dead");
        return;
      }
      const delivery = await send(options, lease.tenant, publication, target, signal);
      const state = await settlePublication(db, lease, delivery, options.settling);
      options.settled?.(state);
      if (state === "dead" && !delivery.delivered) {
        const { id, destination } = publication;
        options.log("warn", "a delivery is dead", { id, destination, error: delivery.error });
      }
    } finally {
      leave();
    }
  }

  function onError(error: unknown): void {
    options.log("error", "a delivery failed and is tried again", {
      error: error instanceof Error ? error.message : String(error),
    });
  }

  let since = 0;
  const loop = startLoop({
    onError,
    async turn(signal) {
      turnedAt = monotonicMs();
      const seen = await lookout.wait(`due:${publicationKind}`, signal, { since });
      since = seen.serial;
      const room = places.room();
      if (room.limit <= 0) return;
      for (const lease of await claimPublications(db, { holder, leaseUs, ...room })) attendTo(lease);
    },
  });

  return {
    get delivering() {
      return places.taken;
    },
    get turnedAt() {
      return turnedAt;
    },
    async stop() {
      await loop.stop();
      const ended = Promise.all(underWay);
      const drained = new AbortController();
      const late = delay(options.drainMs ?? drainMsDefault, undefined, { signal: drained.signal });
      await Promise.race([ended, late.catch(() => undefined)]);
      drained.abort();
      stopping.abort();
      await ended;
    },
  };
}

/** Destinations of one origin share its bound. What is no URL is refused when it is called. */
function originOf({ url }: Target): string {
  return URL.canParse(url) ? new URL(url).origin : url;
}
