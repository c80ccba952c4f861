import type { TenantId } from "../core/ids.ts";
import { leaseKinds } from "../core/lease.ts";
import { type Database, type Transaction, view } from "../core/postgres/transition.ts";
import { supportedSchema } from "../core/schema/version.ts";
import { formatInstant, type Instant, instant, seconds } from "../core/time.ts";
import type { LeaseView, OverviewView, SystemView } from "../wire/overview.ts";
import { overviewLimits } from "../wire/overview-limits.ts";
import { readLoad } from "./load.store.ts";
import * as sql from "./overview.sql.ts";
import { estimate, workSample } from "./work-load.store.ts";

const most = BigInt(overviewLimits.countMax);

export interface LeaseFilter {
  readonly kind: string | null;
  readonly resource: string | null;
}

/** What a tenant has going on, in one look. */
export function readOverview(db: Database, tenant: TenantId): Promise<Omit<OverviewView, "loops">> {
  return view(db, { role: "gateway", tenant, name: "readOverview" }, async (tx) => {
    const counts = await tx.run(sql.readOverview, { most });
    const since = instant(tx.now - seconds(overviewLimits.recentHours * 3_600));
    const recent = countsOf(await tx.run(sql.readRecentJobs, { since, most }));
    const pools = await tx.run(sql.readOwnPools, {});
    const activations = countsOf(await tx.run(sql.readOpenActivations, { most }));
    const leases = await tx.run(sql.countOwnLeases, { kinds: leaseKinds, most });
    // Waiting jobs are due all the time: they wait for a slot.
    const attended = leaseKinds.filter((kind) => kind !== "admission");
    const [oldest] = await leasesIn(tx, { kinds: attended, resource: null }, 1n);
    return {
      at: formatInstant(tx.now),
      jobs: {
        waiting: Number(counts.jobs_waiting),
        oldest_waiting_at: timeOrNull(counts.oldest_waiting_at),
        running: pools.reduce((sum, { running }) => sum + Number(running), 0),
        recent: { succeeded: recent("succeeded"), failed: recent("failed"), cancelled: recent("cancelled") },
      },
      pools: pools.map(({ pool, slots, running }) => ({
        pool,
        slots: Number(slots),
        running: Number(running),
      })),
      activations: {
        queued: activations("queued"),
        running: activations("running") + activations("committing"),
        waiting: activations("waiting"),
      },
      deliveries: { pending: Number(counts.deliveries_pending), dead: Number(counts.deliveries_dead) },
      work: leases.flatMap(({ work_state: state, looked_at }) =>
        state === null ? [] : [{ state, count: Number(looked_at) }],
      ),
      unproven: Number(counts.unproven),
      leases: { ...glance(leases), oldest: oldest ?? null },
    };
  });
}

/** What many leases come to. Each kind was looked at up to a bound. */
function glance(rows: readonly sql.CountOwnLeasesRow[]): Omit<OverviewView["leases"], "oldest"> {
  const lookedAt = new Map<string, bigint>();
  let [held, due] = [0, 0];
  for (const row of rows) {
    lookedAt.set(row.kind, (lookedAt.get(row.kind) ?? 0n) + row.looked_at);
    held += Number(row.held);
    if (row.kind !== "admission") due += Number(row.due);
  }
  return { held, due, partial: [...lookedAt.values()].some((count) => count >= most) };
}

/** A tenant's leases, the longest due first. */
export function listLeases(db: Database, tenant: TenantId, filter: LeaseFilter): Promise<LeaseView[]> {
  const kinds = filter.kind === null ? leaseKinds : [filter.kind];
  return view(db, { role: "gateway", tenant, name: "listLeases" }, (tx) =>
    leasesIn(tx, { kinds, resource: filter.resource }, BigInt(overviewLimits.leasesMax)),
  );
}

async function leasesIn(
  tx: Transaction,
  { kinds, resource }: { readonly kinds: readonly string[]; readonly resource: string | null },
  limit: bigint,
): Promise<LeaseView[]> {
  const rows =
    resource === null
      ? await tx.run(sql.listLeases, { kinds, most, limit })
      : await tx.run(sql.listLeasesOfResource, { kinds, resource });
  return rows.map((row) => ({
    kind: row.kind,
    resource_id: row.resource_id,
    queue: row.queue,
    priority: row.priority,
    holder: row.holder,
    epoch: String(row.epoch),
    due_at: formatInstant(row.due_at),
    wake_at: formatInstant(row.wake_at),
    due: row.wake_at <= tx.now,
  }));
}

const aliveWithin = seconds(60);

/** The installation: with the dispatcher's rights, which show no payload of any tenant. */
export async function readSystem(db: Database): Promise<SystemView> {
  const facts = await view(db, { role: "dispatcher", tenant: null, name: "readSystem" }, async (tx) => ({
    now: tx.now,
    store: await tx.run(sql.readStoreFacts, {}),
    migrations: await tx.run(sql.listMigrations, {}),
    incarnations: await tx.run(sql.listIncarnations, {
      within_us: aliveWithin,
      limit: BigInt(overviewLimits.incarnationsMax),
    }),
    held: await heldLeases(tx),
  }));
  const { store, migrations, held } = facts;
  const { pools } = await readLoad(db);
  return {
    at: formatInstant(facts.now),
    installation: store.installation_id,
    incarnation: store.incarnation_id,
    created_at: formatInstant(store.created_at),
    deployment_epoch: String(store.deployment_epoch),
    schema: {
      version: migrations.at(-1)?.version ?? 0,
      supported: { ...supportedSchema },
      reader_floor: store.reader_floor,
      writer_floor: store.writer_floor,
      migrations: migrations.map(({ applied_at, ...migration }) => ({
        ...migration,
        applied_at: formatInstant(applied_at),
      })),
    },
    incarnations: facts.incarnations.map((row) => ({
      id: row.incarnation_id,
      process: row.process,
      release: row.release,
      schema_minimum: row.schema_minimum,
      schema_maximum: row.schema_maximum,
      deployment_epoch: String(row.deployment_epoch),
      started_at: formatInstant(row.started_at),
      seen_at: formatInstant(row.seen_at),
      ended_at: timeOrNull(row.ended_at),
      alive: row.alive,
      leases: held.get(row.incarnation_id) ?? 0,
    })),
    pools: pools.map((pool) => ({ ...pool })),
    changes: { position: String(store.position), floor: String(store.floor) },
  };
}

/** How many leases each process holds; those of Work are estimated from a sample when there are very many. */
async function heldLeases(tx: Transaction): Promise<ReadonlyMap<string, number>> {
  const kinds = leaseKinds.filter((kind) => kind !== "work");
  const held = new Map<string, number>();
  for (const { holder, count } of await tx.run(sql.countHeldLeases, { kinds, most })) {
    held.set(holder, Number(count));
  }
  const parts = await workSample(tx);
  for (const { holder, count } of await tx.run(sql.countHeldWork, { parts })) {
    held.set(holder, (held.get(holder) ?? 0) + estimate(count, parts));
  }
  return held;
}

const timeOrNull = (at: Instant | null) => (at === null ? null : formatInstant(at));

function countsOf(rows: readonly { readonly state: string; readonly count: bigint }[]) {
  const byState = new Map(rows.map(({ state, count }) => [state, Number(count)]));
  return (state: string) => byState.get(state) ?? 0;
}
