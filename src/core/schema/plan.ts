import { effectOf, type MigrationEffect } from "./catalogue.ts";
import { type Migration, migrationLabel } from "./migrations.ts";
import type { OnlineState } from "./online.ts";
import type { SchemaStatus } from "./status.ts";

/** What one migration asks of those who run the store. */
export interface PlannedMigration {
  readonly migration: string;
  /** Tables that it holds until its commit, as SQL names the lock; null when it is not known. */
  readonly locks: Readonly<Record<string, string>> | null;
  /** The floors that it raises to: every process that does not understand them has to be stopped first. */
  readonly floors: { readonly reader: number; readonly writer: number } | null;
  /** Kinds that have to be drained first. */
  readonly drain: readonly string[];
  /** Live processes that it would leave behind: it refuses while they are there. */
  readonly inTheWay: readonly string[];
}

export interface SchemaPlan {
  readonly version: number;
  readonly pending: readonly PlannedMigration[];
  readonly online: readonly OnlineState[];
}

export function schemaPlan(status: SchemaStatus, effects: readonly MigrationEffect[]): SchemaPlan {
  let floors = { reader: status.store?.readerFloor ?? 0, writer: status.store?.writerFloor ?? 0 };
  const pending = status.pending.map((migration) => {
    const effect = effectOf(effects, migration);
    const raised = effect !== null && isRaised(effect.floors, floors) ? effect.floors : null;
    // A new store has nobody to stop.
    const meant = status.store === null ? null : raised;
    floors = raised ?? floors;
    return {
      migration: migrationLabel(migration),
      locks: effect === null ? null : locksOf(effect),
      floors: meant,
      drain: status.store === null ? [] : drainOf(migration),
      inTheWay: (status.processes ?? [])
        .filter(({ schema }) => meant !== null && schema.maximum < Math.max(meant.reader, meant.writer))
        .map(({ process, release }) => `${process} ${release}`),
    };
  });
  return {
    version: status.applied.length,
    pending,
    online: (status.online ?? []).filter(({ state }) => state !== "done"),
  };
}

function isRaised(to: MigrationEffect["floors"], from: MigrationEffect["floors"]): boolean {
  return from.reader > 0 && (to.reader > from.reader || to.writer > from.writer);
}

/** `AccessExclusiveLock` is `ACCESS EXCLUSIVE` in SQL and in PostgreSQL's documentation. */
function locksOf({ locks }: MigrationEffect): Record<string, string> {
  const words = (mode: string) =>
    mode
      .replace(/Lock$/, "")
      .replaceAll(/(?<=[a-z])(?=[A-Z])/g, " ")
      .toUpperCase();
  return Object.fromEntries(Object.entries(locks).map(([table, mode]) => [table, words(mode)]));
}

/** A line `-- Drain first: work, jobs` in the migration's own opening words. */
function drainOf({ sql }: Migration): string[] {
  const words = /^-- Drain first: (.+)$/m.exec(sql)?.[1];
  return words === undefined ? [] : words.split(/, */);
}
