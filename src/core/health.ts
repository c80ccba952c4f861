import type { Finding } from "./invariant.store.ts";
import type { Instant } from "./time.ts";

export interface Snapshot {
  readonly holder: string;
  readonly ageUs: bigint | null;
  readonly snapshotAge: number;
}

export interface TableHealth {
  readonly name: string;
  readonly live: bigint;
  readonly dead: bigint;
  readonly bytes: bigint;
  readonly vacuumedAt: Instant | null;
}

/** A transaction of ours ends within half a minute: an older one is a backup, or forgotten. */
const transactionUsMax = 300_000_000n;
const snapshotAgeMax = 1_000_000;
const deadRowsMin = 50_000n;

type Attention = Omit<Finding, "promises" | "tenant">;

/** What of it somebody should look at. */
export function attentionOf(health: {
  readonly snapshots: readonly Snapshot[];
  readonly tables: readonly TableHealth[];
}): Finding[] {
  const found: Attention[] = [
    ...health.snapshots.filter(isOld).map(({ holder, ageUs, snapshotAge }) => ({
      check: "oldSnapshot",
      resource: holder,
      problem: `it holds a snapshot${ageUs === null ? "" : ` since ${ageUs / 1_000_000n} s`}, ${snapshotAge} transactions old: dead rows stay, and claims slow down`,
      next: "End it if it is forgotten; take backups from a replica.",
    })),
    ...health.tables.filter(isBloated).map(({ name, live, dead }) => ({
      check: "deadRows",
      resource: name,
      problem: `${dead} of its rows are dead and ${live} are live`,
      next: "See that autovacuum runs and that nothing holds an old snapshot.",
    })),
  ];
  return found.map((finding) => ({ ...finding, promises: [], tenant: null }));
}

const isOld = ({ ageUs, snapshotAge }: Snapshot) =>
  (ageUs !== null && ageUs > transactionUsMax) || snapshotAge > snapshotAgeMax;

const isBloated = ({ live, dead }: TableHealth) => dead > deadRowsMin && dead > 2n * live;
