import { HoldfastError } from "../core/errors.ts";
import type { IncarnationId, TenantId } from "../core/ids.ts";
import { type Database, type Transaction, transition, view } from "../core/postgres/transition.ts";
import { type Instant, seconds } from "../core/time.ts";
import type { WorkVersionView } from "../wire/work.ts";
import type { WorkDefinition } from "./define.ts";
import * as sql from "./version.sql.ts";
import { versionView } from "./view.ts";

/** Longer than a live process is silent. */
const aliveWithin = seconds(60);

/**
 * Make a version known, once and for all (W2). Again with the same content gives the same number; other content
 * under its name and version is a `conflict`: timing that changes needs a new version.
 */
export async function registerVersion(db: Database, work: WorkDefinition): Promise<number> {
  const { name, version, digest, queue, safety, policy, breaker } = work;
  const { retry, plan, elapsed, lease, kind } = policy;
  return transition(db, { role: "worker", tenant: null, name: "registerVersion" }, async (tx) => {
    const made = await tx.run(sql.registerVersion, {
      name,
      version,
      digest,
      queue,
      safety,
      attempts: retry.attempts,
      initial_us: retry.initial,
      longest_us: retry.longest,
      elapsed_us: elapsed,
      lease_us: lease,
      breaker_failures: breaker?.failures ?? null,
      breaker_probe_us: breaker?.probe ?? null,
      policy_schema: kind === "legacy" ? null : "work-execution-v1",
      plan_version: plan?.version ?? null,
      offsets: plan?.offsets ?? null,
      circuit_us: plan?.circuit ?? null,
    });
    if (made !== undefined) return made.version_number;
    const found = await tx.run(sql.readVersion, { name, version });
    if (found === undefined || found.digest !== digest) {
      throw new HoldfastError(
        "conflict",
        `${name} version ${version} is registered with another policy, safety or queue: changed timing needs a new version`,
      );
    }
    return found.version_number;
  });
}

/** Nothing new is accepted under it from now on; what was accepted drains. Again changes nothing. */
export async function retireVersion(db: Database, name: string, version: string): Promise<Instant> {
  const scope = { role: "operator", tenant: null, name: "retireVersion" } as const;
  const row = await transition(db, scope, (tx) => tx.run(sql.retireVersion, { name, version }));
  if (row === undefined) throw new HoldfastError("not_found", "there is no such version");
  return row.retired_at;
}

/** Shows that a live process runs these versions. */
export async function registerRunner(
  db: Database,
  holder: IncarnationId,
  versions: readonly number[],
): Promise<void> {
  const scope = { role: "dispatcher", tenant: null, name: "registerRunner" } as const;
  await transition(db, scope, (tx) => tx.run(sql.registerRunner, { holder, versions }));
}

/** More than any installation registers. */
const versionsMax = 1_000n;

/** All versions, with the number of live processes that run each, and whether the tenant has items of it that wait. */
export function listVersions(db: Database, tenant: TenantId): Promise<sql.ListVersionsRow[]> {
  return view(db, { role: "operator", tenant, name: "listVersions" }, (tx) => versionRows(tx, null));
}

/** The same, of one name when it is given, as the API tells it. */
export async function versionsOf(tx: Transaction, name: string | null): Promise<WorkVersionView[]> {
  return (await versionRows(tx, name)).map(versionView);
}

function versionRows(tx: Transaction, name: string | null): Promise<sql.ListVersionsRow[]> {
  return tx.run(sql.listVersions, { name, within_us: aliveWithin, limit: versionsMax });
}
