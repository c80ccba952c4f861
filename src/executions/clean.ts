import { view as look } from "../core/postgres/transition.ts";
import { markExecutionCleaned, underLease } from "./attempt.store.ts";
import type { AttemptSnapshot } from "./attempt.ts";
import { type Attendance, runtimeOf } from "./context.ts";
import { listObjectsToRemove, markObjectRemoved } from "./object.sql.ts";
import { recordRemoved } from "./phase.store.ts";

/**
 * After the end: delete the outside objects by UID and the objects that no published artifact refers to, then
 * mark the attempt cleaned (E14). Each deletion of something gone is success, so it may be cut off anywhere.
 */
export async function clean({ context, lease, signal }: Attendance, view: AttemptSnapshot): Promise<void> {
  for (const sandbox of view.sandboxes) {
    if (sandbox.state !== "stopped") continue;
    const runtime = runtimeOf(context, sandbox);
    // Without a recorded UID there may still be a held object under the name, made by whoever died or lost its lease.
    const uid = sandbox.uid ?? (await runtime.find(sandbox.name, signal));
    if (uid !== null) {
      const ref = { name: sandbox.name, uid };
      if (sandbox.uid === null) await runtime.stop(ref, lease.epoch, signal);
      await runtime.remove(ref, signal);
    }
    await recordRemoved(context.db, lease, sandbox);
  }
  const { resource: attempt, tenant } = lease;
  const scope = { role: "controller", tenant, name: "listObjectsToRemove" } as const;
  const objects = await look(context.db, scope, (tx) => tx.run(listObjectsToRemove, { attempt }));
  for (const { phase, name, blob_key } of objects) {
    await context.blobs.remove(blob_key, signal);
    await underLease(context.db, lease, "markObjectRemoved", (tx) =>
      tx.run(markObjectRemoved, { attempt, phase, name }),
    );
  }
  await markExecutionCleaned(context.db, lease);
}
