import { view as look } from "../core/postgres/transition.ts";
import { removeSandboxes } from "../sandboxes/reconcile.ts";
import { markExecutionCleaned, underLease } from "./attempt.store.ts";
import type { AttemptSnapshot } from "./attempt.ts";
import type { Attendance } from "./context.ts";
import { listObjectsToRemove, markObjectRemoved } from "./object.sql.ts";

/**
 * After the end: delete the outside objects by UID and the objects that no published artifact refers to, then
 * mark the attempt cleaned (E14). Each deletion of something gone is success, so it may be cut off anywhere.
 */
export async function clean(attendance: Attendance, view: AttemptSnapshot): Promise<void> {
  const { context, lease, signal } = attendance;
  await removeSandboxes(attendance, view.sandboxes);
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
