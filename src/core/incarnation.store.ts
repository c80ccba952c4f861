import { brandId, type IncarnationId, uuidv7 } from "./ids.ts";
import * as sql from "./incarnation.sql.ts";
import type { Incarnation } from "./incarnation.ts";
import { type Database, runAlone, type Transaction } from "./postgres/transition.ts";
import type { Microseconds } from "./time.ts";

/** Makes this run of the process known to the store, before it takes its first lease. */
export async function registerIncarnation(
  db: Pick<Database, "pools" | "deploymentEpoch">,
  self: Pick<Incarnation, "process" | "release" | "schema">,
): Promise<IncarnationId> {
  const id = brandId<IncarnationId>(uuidv7());
  await runAlone(db, "dispatcher", sql.registerIncarnation, {
    incarnation: id,
    process: self.process,
    release: self.release,
    schema_minimum: self.schema.minimum,
    schema_maximum: self.schema.maximum,
    deployment_epoch: db.deploymentEpoch,
  });
  return id;
}

/** The process is a controller, and has these runtimes. */
export async function announceRuntimes(
  db: Pick<Database, "pools">,
  id: IncarnationId,
  runtimes: readonly string[],
): Promise<void> {
  await runAlone(db, "dispatcher", sql.announceRuntimes, { incarnation: id, runtimes });
}

/** The runtimes of controllers that are alive. What needs another one waits until there is one. */
export async function liveRuntimes(tx: Transaction): Promise<ReadonlySet<string>> {
  return new Set((await tx.run(sql.liveRuntimes, {})).map(({ runtime }) => runtime));
}

/** The process has ended. Ending it again changes nothing. The lease keeper does this when it is closed. */
export async function endIncarnation(db: Pick<Database, "pools">, id: IncarnationId): Promise<void> {
  await runAlone(db, "dispatcher", sql.endIncarnation, { incarnation: id });
}

/** The processes that have not ended and were seen within the time, oldest first. */
export async function liveIncarnations(
  db: Pick<Database, "pools">,
  within: Microseconds,
): Promise<Incarnation[]> {
  const rows = await runAlone(db, "dispatcher", sql.liveIncarnations, { within_us: within });
  return rows.map((row) => ({
    id: brandId<IncarnationId>(row.incarnation_id),
    process: row.process,
    release: row.release,
    schema: { minimum: row.schema_minimum, maximum: row.schema_maximum },
    deploymentEpoch: row.deployment_epoch,
    startedAt: row.started_at,
    seenAt: row.seen_at,
  }));
}
