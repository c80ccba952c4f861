import type { Logger } from "pino";
import type { BlobStore } from "../core/blob.port.ts";
import type { TenantId } from "../core/ids.ts";
import { announceRuntimes } from "../core/incarnation.store.ts";
import { type LedgerRetention, startLedgerSweep } from "../core/ledger-sweep.ts";
import { monotonicMs } from "../core/monotonic.ts";
import { publicationKind } from "../core/outbox.store.ts";
import type { Runtime } from "../core/runtime.port.ts";
import { type Microseconds, seconds } from "../core/time.ts";
import {
  deliveryTimeoutMs,
  type Publisher,
  type PublisherOptions,
  startPublisher,
} from "../deliveries/publisher.ts";
import { executionKind } from "../executions/attempt.store.ts";
import {
  type Controller,
  controllerKinds as executionKinds,
  startController,
} from "../executions/controller.ts";
import { executionReports } from "../executions/reports.ts";
import { executionRemovals } from "../executions/retention.ts";
import { type CallbackKeys, callbackToken } from "../sandboxes/callback.ts";
import { type Beside, startCallbackListener } from "../sandboxes/http.ts";
import { retentionKind, startRetention } from "../sandboxes/retention.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import { startSweep } from "../sandboxes/sweep.ts";
import { agentCallbackRoutes } from "../sessions/agent-callback.ts";
import {
  type SessionController,
  sessionControllerKinds,
  startSessionController,
} from "../sessions/controller.ts";
import { promiseCandidate, readInput } from "../sessions/report.store.ts";
import { sessionRemovals } from "../sessions/retention.ts";
import { sweepWork, type WorkRetention } from "../work/retention.ts";
import { type Metrics, openMetrics } from "./metrics.ts";
import { controllerMonitor, type Watched } from "./monitor.ts";
import type { Foundation } from "./process.ts";
import { watchClaims, watchTurns } from "./progress.ts";

/** Lease kinds that a process with a controller waits for. */
export const controllerKinds = [
  ...executionKinds,
  ...sessionControllerKinds,
  retentionKind,
  publicationKind,
] as const;

const sweepEveryMs = 60_000;
const ledgerEveryMs = 3_600_000;
const monthUs = seconds(30 * 86_400);
const ledgerDefault = { commands: monthUs, deliveries: monthUs, changes: monthUs };
const keepAllWork: WorkRetention = { finished: null, observations: new Map() };
/** Longer than any controller takes between making an object and recording it. */
const orphanGraceMs = 300_000;

export interface ControllerRole {
  readonly installation: string;
  readonly runtime: Runtime;
  readonly blobs: BlobStore;
  /** Serves the store's own capabilities, when the store is a directory. */
  readonly beside: Beside;
  readonly callback: {
    readonly host: string;
    readonly port: number;
    /** As sandboxes reach it; null: by the host and port it listens on. */
    readonly url: string | null;
    readonly keys: CallbackKeys;
  };
  readonly retention: Microseconds;
  readonly queueMax: number;
  readonly logBytesMax: bigint;
  readonly logRetention: Microseconds;
  /** What the ledger keeps for a time only, and for how long; without it, as long as the defaults say. */
  readonly ledger?: LedgerRetention;
  /** What is kept of Work for a time only; without it, all of it for ever. */
  readonly work?: WorkRetention;
  readonly attemptsMax: number;
  /** Activations of one tenant at work at once, over all controllers. */
  readonly runsMax: number;
  /** Sessions driven at once by this process. */
  readonly sessionsMax: number;
  /** How often the runtime is searched for orphans, and how long one has to be one. */
  readonly sweep?: { readonly everyMs: number; readonly graceMs: number };
  /** How replies leave. Left out, this process delivers none; another does. */
  readonly deliveries?: DeliveryRole;
  /** What was counted before the controller was opened goes on in the same. */
  readonly metrics?: Metrics;
  readonly log: Logger;
}

export type DeliveryRole = Pick<PublisherOptions, "egress" | "keys"> &
  Partial<Pick<PublisherOptions, "timeoutMs" | "bounds" | "settling" | "drainMs">>;

export interface RunningController {
  readonly controller: Controller;
  readonly sessions: SessionController;
  readonly callbackPort: number;
  close(): Promise<void>;
}

/** The controller of a process with its callback listener: it can run in several processes at once (E16). */
export async function openController(
  foundation: Foundation,
  role: ControllerRole,
): Promise<RunningController> {
  const { db, holder, lookout, keeper, reader, leaseUs } = foundation;
  await announceRuntimes(db, holder, [role.runtime.kind]);
  const metrics = role.metrics ?? openMetrics({ release: "unknown", process: "controller" });
  let sweptAt: number | null = null;
  let watched: Watched | null = null;
  const { keys, host } = role.callback;
  const listener = await startCallbackListener({
    host,
    port: role.callback.port,
    keys,
    reports: executionReports(db, role.blobs),
    routes: [
      agentCallbackRoutes({
        input: (from) => readInput(db, role.blobs, from),
        promise: (from, candidate) => promiseCandidate(db, role.blobs, from, candidate),
      }),
    ],
    beside: role.beside,
    monitor: controllerMonitor(foundation, { ...role, metrics }, () => watched),
    log: role.log,
  });
  const origin = role.callback.url ?? `http://${host.includes(":") ? `[${host}]` : host}:${listener.port}`;
  const { logBytesMax, logRetention } = role;
  const shared = {
    db,
    holder,
    lookout,
    keeper,
    leaseUs,
    changes: (tenant: TenantId, root: string, onChange: () => void) =>
      reader.subscribe({ tenant, root }, onChange),
    installation: role.installation,
    runtimes: new Map([[role.runtime.kind, role.runtime]]),
    blobs: role.blobs,
    callback: {
      url: `${origin.replace(/\/$/, "")}/callback/v1`,
      token: ({ tenant, id, deadline }: Sandbox) => callbackToken(keys, { tenant, sandbox: id, deadline }),
    },
    log: (level: "info" | "warn" | "error", message: string, details: Readonly<Record<string, unknown>>) =>
      role.log[level](details, message),
  };
  const controller = startController({
    ...shared,
    runtime: role.runtime.kind,
    settings: { retention: role.retention, queueMax: role.queueMax, logBytesMax, logRetention },
    attemptsMax: role.attemptsMax,
  });
  const sessions = startSessionController({
    ...shared,
    settings: { runsMax: role.runsMax, logBytesMax, logRetention },
    sessionsMax: role.sessionsMax,
  });
  const claims = watchClaims(lookout, executionKind, controller);
  const publisher =
    role.deliveries === undefined ? null : openPublisher(foundation, { ...role, metrics }, role.deliveries);
  const deliveries = publisher === null ? null : watchTurns(lookout, `due:${publicationKind}`, publisher);
  watched = { controller, claims, deliveries, sweptAt: () => sweptAt };
  const retention = startRetention({
    db,
    holder,
    lookout,
    blobs: role.blobs,
    removals: new Map([...executionRemovals, ...sessionRemovals]),
    onError: (error) =>
      role.log.warn({ err: error }, "what has had its time could not be removed and is tried again"),
  });
  const sweep = startSweep({
    db,
    runtimes: [role.runtime],
    intervalMs: role.sweep?.everyMs ?? sweepEveryMs,
    graceMs: role.sweep?.graceMs ?? orphanGraceMs,
    swept: () => {
      sweptAt = monotonicMs();
    },
    log: (level, message, details) => role.log[level](details, message),
  });
  const ledger = startLedgerSweep({
    db,
    retention: role.ledger ?? ledgerDefault,
    also: [(signal) => sweepWork(db, role.work ?? keepAllWork, signal)],
    everyMs: ledgerEveryMs,
    onError: (error) => role.log.warn({ err: error }, "the ledger could not be swept and is swept again"),
  });
  return {
    controller,
    sessions,
    callbackPort: listener.port,
    async close() {
      claims.stop();
      deliveries?.stop();
      await Promise.all([
        controller.stop(),
        sessions.stop(),
        retention.stop(),
        sweep.stop(),
        ledger.stop(),
        publisher?.stop(),
      ]);
      await listener.close();
    },
  };
}

function openPublisher(
  { db, holder, lookout, keeper, leaseUs }: Foundation,
  { log, metrics }: Pick<ControllerRole, "log"> & { readonly metrics: Metrics },
  deliveries: DeliveryRole,
): Publisher {
  return startPublisher({
    db,
    holder,
    lookout,
    keeper,
    leaseUs,
    timeoutMs: deliveryTimeoutMs,
    ...deliveries,
    settled: metrics.tried,
    log: (level, message, details) => log[level](details, message),
  });
}
