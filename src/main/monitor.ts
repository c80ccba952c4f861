import { monotonicMs } from "../core/monotonic.ts";
import type { Controller } from "../executions/controller.ts";
import type { Monitor } from "../sandboxes/http.ts";
import { readLoad } from "./load.store.ts";
import type { Metrics } from "./metrics.ts";
import type { Foundation } from "./process.ts";
import { type ClaimWatch, loopProgress } from "./progress.ts";
import { readWorkLoad } from "./work-load.store.ts";

/** What only exists once the listener is open: the controller is told the port. */
export interface Watched {
  readonly controller: Controller;
  readonly claims: ClaimWatch;
  /** Of the publisher; null: this process delivers nothing. */
  readonly deliveries: ClaimWatch | null;
  /** When the sweep last looked at everything, on the monotonic clock; null before the first time. */
  readonly sweptAt: () => number | null;
}

/**
 * What a process with a controller answers to probes and metrics. Ready: the schema fits, the database answers,
 * and what keeps leases and claims attempts gets on. A runtime that does not answer is no reason to hear no
 * sandbox, so the sweep is in the metrics alone, and so are deliveries.
 */
export function controllerMonitor(
  { db, lookout, keeper }: Pick<Foundation, "db" | "lookout" | "keeper">,
  about: { readonly installation: string; readonly queueMax: number; readonly metrics: Metrics },
  watched: () => Watched | null,
): Monitor {
  const overdueMs = () => watched()?.claims.overdueMs() ?? 0;
  const deliveriesOverdue = () => {
    const overdue = watched()?.deliveries?.overdueMs();
    return overdue === undefined ? null : overdue / 1000;
  };
  const sources = {
    load: () => readLoad(db),
    workLoad: () => readWorkLoad(db),
    waitingMax: about.queueMax,
    attending: () => watched()?.controller.attending ?? 0,
    held: () => keeper.held(),
    loops: () =>
      new Map([
        ["lookout", secondsSince(lookout.lastAnsweredAt)],
        ["leases", secondsSince(keeper.lastRenewedAt)],
        ["claims", overdueMs() / 1000],
        ["deliveries", deliveriesOverdue()],
        ["sweep", secondsSince(watched()?.sweptAt() ?? null)],
      ]),
  };
  return {
    db,
    installation: about.installation,
    progress: () => [
      loopProgress("lookout", lookout.lastAnsweredAt),
      loopProgress("leases", keeper.lastRenewedAt),
      loopProgress("claims", watched() === null ? null : monotonicMs() - overdueMs()),
    ],
    metrics: () => about.metrics.read(sources),
  };
}

const secondsSince = (at: number | null): number | null => (at === null ? null : (monotonicMs() - at) / 1000);
