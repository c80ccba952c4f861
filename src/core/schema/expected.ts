import { type ExpectedStore, expectedObjects, type MigrationEffect } from "./catalogue.ts";
import type { Migration } from "./migrations.ts";
import { type OnlineState, type OnlineStep, touchedBy } from "./online.ts";

/**
 * What the store should have after these migrations, with its online steps as far as they are; null when the
 * catalogue does not know all of it. It is written with all migrations of the release applied: on the way there the
 * objects of a step that an earlier release had run may be as either left them.
 */
export function expectedStore(
  effects: readonly MigrationEffect[],
  applied: readonly Migration[],
  online: {
    readonly steps: readonly OnlineStep[];
    readonly states: readonly OnlineState[];
    /** Whether these are all migrations of the release. */
    readonly complete: boolean;
  },
): ExpectedStore | null {
  const migrated = expectedObjects(effects, applied);
  if (migrated === null) return null;
  const objects = new Map(migrated);
  const open = new Set<string>();
  for (const [place, step] of online.steps.entries()) {
    const state = online.states[place]?.state ?? "pending";
    if (state === "pending") continue;
    if (step.makes === null) return null;
    if (state !== "done" || !online.complete) {
      for (const object of touchedBy(step)) open.add(object);
      continue;
    }
    for (const object of step.makes.removed) objects.delete(object);
    for (const [object, hash] of Object.entries(step.makes.objects)) objects.set(object, hash);
  }
  return { objects, open };
}
