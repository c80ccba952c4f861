import { actAsLogin, listSnapshots, listTableHealth } from "./health.sql.ts";
import type { Snapshot, TableHealth } from "./health.ts";
import { type Database, view } from "./postgres/transition.ts";
import type { Instant } from "./time.ts";

const listed = 20n;

/** What holds old rows back, and where dead ones are. */
export function readServerHealth(
  db: Database,
): Promise<{ readonly now: Instant; readonly snapshots: Snapshot[]; readonly tables: TableHealth[] }> {
  return view(db, { role: "dispatcher", tenant: null, name: "readServerHealth" }, async (tx) => {
    await tx.run(actAsLogin, {});
    const snapshots = await tx.run(listSnapshots, { limit: listed });
    const tables = await tx.run(listTableHealth, { limit: listed });
    return {
      now: tx.now,
      snapshots: snapshots.map(({ holder, age_us, snapshot_age }) => ({
        holder,
        ageUs: age_us,
        snapshotAge: snapshot_age,
      })),
      tables: tables.map(({ vacuumed_at, ...table }) => ({ ...table, vacuumedAt: vacuumed_at })),
    };
  });
}
