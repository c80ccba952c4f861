import type { Logger } from "pino";
import type { IncarnationId } from "../core/ids.ts";
import { registerIncarnation } from "../core/incarnation.store.ts";
import { leaseTime, renewEveryMs } from "../core/lease.ts";
import { type Lookout, startLookout } from "../core/lookout.ts";
import type { TurningLoop } from "../core/loop.ts";
import { type Doorbell, openDoorbell } from "../core/postgres/doorbell.ts";
import { type LeaseKeeper, startLeaseKeeper } from "../core/postgres/lease-keeper.ts";
import { type ConnectionSettings, openPools, type Pools } from "../core/postgres/pool.ts";
import { translateFirst } from "../core/postgres/sqlstate.ts";
import type { Database } from "../core/postgres/transition.ts";
import { checkCompatibility, type StoreFacts } from "../core/schema/compatibility.ts";
import { supportedSchema } from "../core/schema/version.ts";
import { startSequencer } from "../core/sequencer.ts";
import { type Microseconds, toMilliseconds } from "../core/time.ts";
import { type ChangeReader, startChangeReader } from "../core/watch.ts";
import type { Metrics } from "./metrics.ts";

/** What every process of Holdfast stands on, opened once and closed in the reverse order. */
export interface Foundation {
  readonly db: Database;
  readonly store: StoreFacts;
  readonly holder: IncarnationId;
  readonly doorbell: Doorbell;
  readonly lookout: Lookout;
  readonly reader: ChangeReader;
  readonly sequencer: TurningLoop;
  readonly keeper: LeaseKeeper;
  readonly leaseUs: Microseconds;
  close(): Promise<void>;
}

export interface FoundationOptions {
  readonly settings: ConnectionSettings;
  /** What the process is: `gateway`, `controller`, `dev`. */
  readonly process: string;
  readonly release: string;
  /** Refuses a store of another installation, so that a clone never sweeps production. */
  readonly installation: string;
  /** Lease kinds that the process waits for. */
  readonly kinds: readonly string[];
  readonly log: Logger;
  readonly leaseUs?: Microseconds;
  readonly renewMs?: number;
  readonly lookMs?: number;
  /** Counts refused fences and lost leases. */
  readonly metrics?: Pick<Metrics, "refused" | "lost">;
}

/**
 * Check that binary and schema fit each other before a row is touched (M2), then open pools, doorbell, the one
 * lookout, the sequencer, the one change reader and the lease keeper. It never applies a migration (M1).
 */
export async function openFoundation(options: FoundationOptions): Promise<Foundation> {
  const { settings, log, process: name } = options;
  const leaseUs = options.leaseUs ?? leaseTime;
  const closers: (() => Promise<void>)[] = [];
  const close = async () => {
    for (const closer of closers.splice(0).toReversed()) await closer();
  };
  const report = (what: string) => (error: unknown) => log.warn({ err: error }, what);
  try {
    const pools: Pools = openPools({
      settings,
      name: `holdfast/${name}`,
      onError: report("an idle connection broke"),
    });
    closers.push(() => pools.close());
    const store = await checkCompatibility(pools.of("dispatcher"), {
      purpose: "write",
      installation: options.installation,
    }).catch((error: unknown) => {
      throw translateFirst(error);
    });
    const doorbell = openDoorbell({
      settings,
      name: `holdfast/${name}`,
      onError: report("the doorbell's connection broke"),
    });
    closers.push(() => doorbell.close());
    const db: Database = {
      pools,
      deploymentEpoch: store.deploymentEpoch,
      committed: () => doorbell.ring(),
      refused: (code) => options.metrics?.refused(code),
    };
    const lookout = startLookout({
      db,
      doorbell,
      kinds: options.kinds,
      onError: report("the database did not answer the lookout"),
      ...(options.lookMs === undefined ? {} : { intervalMs: options.lookMs }),
    });
    closers.push(() => lookout.stop());
    const sequencer = startSequencer({ db, lookout, onError: report("changes could not be stamped") });
    closers.push(() => sequencer.stop());
    const reader = await startChangeReader({ db, lookout, onError: report("positions could not be read") });
    closers.push(() => reader.stop());
    const holder = await registerIncarnation(db, {
      process: name,
      release: options.release,
      schema: supportedSchema,
    });
    const keeper = startLeaseKeeper({
      settings,
      holder,
      name: `holdfast/${name}`,
      leaseUs,
      renewMs: options.renewMs ?? Math.min(renewEveryMs, toMilliseconds(leaseUs) / 3),
      onError: report("leases could not be renewed"),
      onLost: ({ kind, resource }) => {
        options.metrics?.lost(kind);
        log.warn({ kind, resource }, "a lease was lost");
      },
    });
    closers.push(() => keeper.close());
    return { db, store, holder, doorbell, lookout, reader, sequencer, keeper, leaseUs, close };
  } catch (error) {
    await close();
    throw error;
  }
}
