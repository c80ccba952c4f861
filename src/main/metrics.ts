import { Counter, Gauge, Registry } from "prom-client";
import { monotonicMs } from "../core/monotonic.ts";
import type { PublicationState } from "../core/outbox.ts";
import type { ErrorCode } from "../wire/errors.ts";
import type { Load } from "./load.store.ts";
import type { WorkLoad } from "./work-load.store.ts";

interface Metric {
  readonly name: string;
  readonly kind: "gauge" | "counter";
  readonly labels: readonly string[];
  readonly help: string;
}

/**
 * Every metric of a process. No label comes from a tenant, a job or a sandbox: they carry no payload, and their
 * number is bounded. `docs/reference/metrics.md` documents each, and a test holds the two to each other.
 */
export const metricTable = {
  info: gauge("holdfast_info", "The release that runs, and what it is", "release", "process"),
  databaseUp: gauge("holdfast_database_up", "1 when the database answered for this reading, else 0"),
  waiting: gauge("holdfast_jobs_waiting", "Jobs that wait for a slot", "pool"),
  waitingMax: gauge("holdfast_jobs_waiting_max", "As many may wait, over all pools"),
  slots: gauge("holdfast_slots", "Attempts that may run at once", "pool"),
  slotsUsed: gauge("holdfast_slots_used", "Slots that attempts have now", "pool"),
  attempts: gauge("holdfast_attempts", "Attempts that are not cleaned yet", "state"),
  unattended: gauge("holdfast_attempts_unattended", "Attempts that no controller drives at this moment"),
  unproven: gauge("holdfast_sandboxes_stop_unproven", "Sandboxes that can't be proven stopped"),
  attending: gauge("holdfast_attempts_attended", "Attempts that this process drives"),
  held: gauge("holdfast_leases_held", "Leases that this process renews", "kind"),
  lost: counter("holdfast_leases_lost_total", "Leases that this process lost", "kind"),
  refused: counter("holdfast_fence_refusals_total", "Writes that the database refused", "code"),
  loopAge: gauge("holdfast_loop_age_seconds", "Since a loop of this process last got on", "loop"),
  requests: counter(
    "holdfast_runtime_requests_total",
    "Requests sent to the runtime's API",
    "runtime",
    "verb",
    "resource",
    "status",
  ),
  workItems: gauge("holdfast_work_items", "Live items of Work; an estimate when there are many", "state"),
  workOldestDue: gauge(
    "holdfast_work_oldest_due_seconds",
    "Since when the oldest item is due that nobody has",
  ),
  workUnattended: gauge(
    "holdfast_work_lanes_unattended",
    "Lanes with items whose version no live worker has",
  ),
  workCircuits: gauge("holdfast_work_circuits_open", "Circuit breakers that are open"),
  workQuarantined: gauge("holdfast_work_quarantined", "Late results that are kept", "reason"),
  deliveries: counter("holdfast_deliveries_total", "Tries to deliver, by what came of them", "result"),
} as const satisfies Readonly<Record<string, Metric>>;

/** What is read for each reading. */
export interface MetricSources {
  readonly load: () => Promise<Load>;
  readonly workLoad: () => Promise<WorkLoad>;
  readonly waitingMax: number;
  readonly attending: () => number;
  readonly held: () => ReadonlyMap<string, number>;
  /** Seconds since each loop got on; null: it has not yet. */
  readonly loops: () => ReadonlyMap<string, number | null>;
}

export interface Metrics {
  /** Counts what the database refused. */
  readonly refused: (code: ErrorCode) => void;
  readonly lost: (kind: string) => void;
  /** Counts tries to deliver, by what the publication was afterwards. */
  readonly tried: (state: PublicationState) => void;
  /** Counts requests of a runtime. */
  readonly requests: (
    runtime: string,
  ) => (call: { readonly verb: string; readonly resource: string }, status: number) => void;
  /** A reading in Prometheus's text format. Never throws: what can't be read is left out. */
  read(sources: MetricSources): Promise<{ readonly contentType: string; readonly text: string }>;
}

/** The store is asked no more often, however often it is read: the listener hears sandboxes too. */
const restMs = 1_000;

export function openMetrics(about: { readonly release: string; readonly process: string }): Metrics {
  const registry = new Registry();
  const gaugeOf = ({ name, help, labels }: Metric) =>
    new Gauge({ name, help, labelNames: [...labels], registers: [registry] });
  const counterOf = ({ name, help, labels }: Metric) =>
    new Counter({ name, help, labelNames: [...labels], registers: [registry] });
  const gauges = {
    databaseUp: gaugeOf(metricTable.databaseUp),
    waiting: gaugeOf(metricTable.waiting),
    waitingMax: gaugeOf(metricTable.waitingMax),
    slots: gaugeOf(metricTable.slots),
    slotsUsed: gaugeOf(metricTable.slotsUsed),
    attempts: gaugeOf(metricTable.attempts),
    unattended: gaugeOf(metricTable.unattended),
    unproven: gaugeOf(metricTable.unproven),
    attending: gaugeOf(metricTable.attending),
    held: gaugeOf(metricTable.held),
    loopAge: gaugeOf(metricTable.loopAge),
  };
  const work = {
    items: gaugeOf(metricTable.workItems),
    oldestDue: gaugeOf(metricTable.workOldestDue),
    unattended: gaugeOf(metricTable.workUnattended),
    circuits: gaugeOf(metricTable.workCircuits),
    quarantined: gaugeOf(metricTable.workQuarantined),
  };
  gaugeOf(metricTable.info).set({ ...about }, 1);
  const lost = counterOf(metricTable.lost);
  const refused = counterOf(metricTable.refused);
  const requests = counterOf(metricTable.requests);
  const deliveries = counterOf(metricTable.deliveries);

  function fillStore(load: Load | null): void {
    gauges.databaseUp.set(load === null ? 0 : 1);
    const { waiting, slots, slotsUsed, attempts, unattended, unproven } = gauges;
    // What the store can't say now is absent, not what it said before.
    for (const labelled of [waiting, slots, slotsUsed, attempts]) labelled.reset();
    for (const single of [unattended, unproven]) single.remove();
    if (load === null) return;
    for (const pool of load.pools) {
      waiting.set({ pool: pool.pool }, pool.waiting);
      slots.set({ pool: pool.pool }, pool.slots);
      slotsUsed.set({ pool: pool.pool }, pool.used);
    }
    attempts.set({ state: "active" }, load.active);
    attempts.set({ state: "finished" }, load.finished);
    unattended.set(load.unattended);
    unproven.set(load.unproven);
  }

  function fillWork(load: WorkLoad | null): void {
    const { items, oldestDue, unattended, circuits, quarantined } = work;
    for (const labelled of [items, quarantined]) labelled.reset();
    for (const single of [oldestDue, unattended, circuits]) single.remove();
    if (load === null) return;
    for (const [state, count] of load.items) items.set({ state }, count);
    oldestDue.set(load.oldestDueSeconds);
    unattended.set(load.unattended);
    circuits.set(load.circuitsOpen);
    for (const [reason, count] of load.quarantined) quarantined.set({ reason }, count);
  }

  function fillProcess(sources: MetricSources): void {
    gauges.waitingMax.set(sources.waitingMax);
    gauges.attending.set(sources.attending());
    gauges.held.reset();
    for (const [kind, count] of sources.held()) gauges.held.set({ kind }, count);
    gauges.loopAge.reset();
    for (const [loop, age] of sources.loops()) if (age !== null) gauges.loopAge.set({ loop }, age);
  }

  const loadOf = rested<Load>();
  const workLoadOf = rested<WorkLoad>();

  return {
    refused: (code) => refused.inc({ code }),
    lost: (kind) => lost.inc({ kind }),
    tried: (state) => deliveries.inc({ result: state === "pending" ? "failed" : state }),
    requests:
      (runtime) =>
      ({ verb, resource }, status) =>
        requests.inc({ runtime, verb, resource, status: status === 0 ? "none" : String(status) }),
    async read(sources) {
      fillStore(await loadOf(sources.load));
      fillWork(await workLoadOf(sources.workLoad));
      fillProcess(sources);
      return { contentType: registry.contentType, text: await registry.metrics() };
    },
  };
}

/** Asks again only after a rest. Null: it could not be read. */
function rested<T>(): (read: () => Promise<T>) => Promise<T | null> {
  let reading: Promise<T | null> | null = null;
  let readAt = 0;
  return (read) => {
    if (reading === null || monotonicMs() - readAt > restMs) {
      readAt = monotonicMs();
      reading = read().catch(() => null);
    }
    return reading;
  };
}

function gauge(name: string, help: string, ...labels: readonly string[]): Metric {
  return { name, kind: "gauge", labels, help };
}

function counter(name: string, help: string, ...labels: readonly string[]): Metric {
  return { name, kind: "counter", labels, help };
}
