import { HoldfastError } from "../core/errors.ts";
import { readServerHealth } from "../core/health.store.ts";
import { attentionOf } from "../core/health.ts";
import type { TenantId } from "../core/ids.ts";
import { liveIncarnations } from "../core/incarnation.store.ts";
import { allTenants, type Finding, findViolations } from "../core/invariant.store.ts";
import type { Invariant } from "../core/invariant.ts";
import { kernelInvariants } from "../core/invariants.ts";
import type { Database } from "../core/postgres/transition.ts";
import { checkCompatibility } from "../core/schema/compatibility.ts";
import { supportedSchema } from "../core/schema/version.ts";
import { isTenant } from "../core/tenant.store.ts";
import { formatInstant, type Instant, seconds } from "../core/time.ts";
import { executionInvariants } from "../executions/invariants.ts";
import { sandboxInvariants } from "../sandboxes/invariants.ts";
import { sessionInvariants } from "../sessions/invariants.ts";
import type { DoctorReport } from "../wire/doctor.ts";
import { workInvariants } from "../work/invariants.ts";
import { readNeglect } from "./neglect.store.ts";
import { neglectOf } from "./neglect.ts";

/** Everything that is always true of a store. */
export const allInvariants: readonly Invariant[] = [
  ...kernelInvariants,
  ...sandboxInvariants,
  ...executionInvariants,
  ...sessionInvariants,
  ...workInvariants,
];

const findingsOfACheckMax = 20;
const aliveWithin = seconds(60);

/**
 * Asks a live store whether everything that is always true of it is true, and what slows it. It only reads, and
 * needs the roles dispatcher and operator. One tenant alone, or all of them and the installation.
 */
export async function examine(
  db: Omit<Database, "deploymentEpoch">,
  tenant: TenantId | null = null,
): Promise<DoctorReport> {
  const facts = await checkCompatibility(db.pools.of("operator"), { purpose: "read" });
  const own: Database = { ...db, deploymentEpoch: facts.deploymentEpoch };
  if (tenant !== null && !(await isTenant(own, tenant))) {
    throw new HoldfastError("not_found", `there is no tenant ${tenant}`);
  }
  const broken = await findViolations(own, allInvariants, { tenant, limit: findingsOfACheckMax });
  const { now, snapshots, tables } = await readServerHealth(own);
  const processes = await liveIncarnations(own, aliveWithin);
  const neglected = tenant === null ? neglectOf(await readNeglect(own)) : [];
  const attention = tenant === null ? [...attentionOf({ snapshots, tables }), ...neglected] : [];
  return {
    healthy: broken.length + attention.length === 0,
    at: formatInstant(now),
    store: {
      installation: facts.installationId,
      incarnation: facts.incarnationId,
      schema: facts.version,
      supported: { ...supportedSchema },
      reader_floor: facts.readerFloor,
      writer_floor: facts.writerFloor,
    },
    checks: allInvariants.length,
    tenants: tenant === null ? await count(allTenants(own)) : 1,
    findings: [...broken.map(findingView("broken")), ...attention.map(findingView("attention"))],
    processes: processes.map(({ id, process, release, startedAt, seenAt }) => ({
      id,
      process,
      release,
      started_at: formatInstant(startedAt),
      seen_at: formatInstant(seenAt),
    })),
    transactions: snapshots.map(({ holder, ageUs, snapshotAge }) => ({
      holder,
      age_ms: ageUs === null ? null : Number(ageUs / 1000n),
      snapshot_age: snapshotAge,
    })),
    tables: tables.map(({ name, live, dead, bytes, vacuumedAt }) => ({
      name,
      live_rows: Number(live),
      dead_rows: Number(dead),
      bytes: Number(bytes),
      vacuumed_at: timeOrNull(vacuumedAt),
    })),
  };
}

const timeOrNull = (at: Instant | null) => (at === null ? null : formatInstant(at));

const findingView =
  (severity: "broken" | "attention") =>
  ({ promises, ...finding }: Finding) => ({ ...finding, severity, promises: [...promises] });

async function count(all: AsyncIterable<unknown>): Promise<number> {
  let number = 0;
  for await (const _one of all) number += 1;
  return number;
}
