import { liveRuntimes } from "../core/incarnation.store.ts";
import { type LeaseKind, leaseKinds } from "../core/lease.ts";
import { type Database, view } from "../core/postgres/transition.ts";
import { instant, seconds } from "../core/time.ts";
import { listNeglectedLeases, listNeglectedVersions } from "./neglect.sql.ts";
import type { Neglect, NeglectedLine } from "./neglect.ts";

/** Due for longer than this, and nobody took it. */
const neglectedUs = seconds(300);
const aliveWithin = seconds(60);
const linesMax = 20n;

const isLeaseKind = (text: string): text is LeaseKind => leaseKinds.some((kind) => kind === text);

/** Leases with the dispatcher's rights, what is registered with the operator's. */
export async function readNeglect(db: Database): Promise<Neglect> {
  const { lines, runtimes } = await view(
    db,
    { role: "dispatcher", tenant: null, name: "readNeglectedLeases" },
    async (tx) => {
      const rows = await tx.run(listNeglectedLeases, {
        before: instant(tx.now - neglectedUs),
        limit: linesMax,
      });
      const found = rows.flatMap(({ kind, ...line }): NeglectedLine[] =>
        isLeaseKind(kind) ? [{ kind, ...line }] : [],
      );
      return { lines: found, runtimes: await liveRuntimes(tx) };
    },
  );
  const numbers = lines.filter(({ kind }) => kind === "work").map(({ queue }) => Number.parseInt(queue, 10));
  const versions = await view(db, { role: "operator", tenant: null, name: "readNeglectedVersions" }, (tx) =>
    tx.run(listNeglectedVersions, { versions: numbers, within_us: aliveWithin }),
  );
  return {
    lines,
    runtimes,
    versions: new Map(
      versions.map(({ version_number: number, name, version, runners }) => [
        number,
        { name, version, runners: Number(runners) },
      ]),
    ),
  };
}
