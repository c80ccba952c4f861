import * as sql from "./deployment.sql.ts";
import { awaitEarlierTransactions } from "./earlier.ts";
import { HoldfastError } from "./errors.ts";
import { type Database, transition } from "./postgres/transition.ts";

export interface Rotation {
  /** The epoch that the operator saw; another one is a `conflict`, and nothing changes. */
  readonly from: bigint;
  readonly reason: string;
  /** Also when processes of it are alive: they commit nothing from then on. */
  readonly cutOff: boolean;
}

/**
 * Begin the next deployment epoch. Every process of an older one is refused at the beginning of its next transaction
 * (`deployment_fenced`), and its leases are not renewed. `processes_alive` while any is alive, unless it is to be cut
 * off. `settled` is false when a transaction that began before is still open after ten seconds.
 */
export async function rotateDeployment(
  db: Database,
  { from, reason, cutOff }: Rotation,
): Promise<{ readonly epoch: bigint; readonly settled: boolean }> {
  await transition(db, { role: "operator", tenant: null, name: "rotateDeployment" }, async (tx) => {
    await tx.run(sql.nameRotation, { reason, cut_off: cutOff ? "on" : "" });
    if ((await tx.run(sql.rotateDeployment, { expected: from })) === 1) return;
    const { deployment_epoch } = await tx.run(sql.readDeployment, {});
    throw new HoldfastError("conflict", `the store is at deployment epoch ${deployment_epoch}, not ${from}`);
  });
  return { epoch: from + 1n, settled: await awaitEarlierTransactions(db) };
}
