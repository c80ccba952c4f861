import { historyRow, historyTable } from "./history.ts";
import { ownerPrelude } from "./migrate.ts";
import { type Migration, migrationLabel } from "./migrations.ts";

/**
 * What `applySchema` would run, as SQL for review and for those who apply by their own tools (M3). The same
 * migrations give the same bytes. Each transaction refuses a store that isn't exactly at the version before
 * it, so running the script twice, or from the wrong version, changes nothing.
 */
export function schemaScript(
  migrations: readonly Migration[],
  options: { readonly from?: number } = {},
): string {
  const from = options.from ?? 0;
  const pending = migrations.filter((migration) => migration.version > from);
  const last = pending.at(-1)?.version ?? from;
  const parts = [
    `-- Holdfast schema, version ${String(from)} to ${String(last)}.`,
    "-- Run it as a login that may SET ROLE holdfast_owner, after roles.sql, and stop at the first error:",
    "--   psql --no-psqlrc --set ON_ERROR_STOP=1 --file THIS",
    "-- One at a time: nothing else may apply meanwhile.",
    "",
  ];
  if (from === 0) parts.push("begin;", ownerPrelude, historyTable, "commit;", "");
  for (const migration of pending) {
    const label = migrationLabel(migration);
    parts.push(
      `-- ${label}  sha256 ${migration.checksum}`,
      "begin;",
      ownerPrelude,
      assertVersion(migration.version - 1),
      migration.sql.trimEnd(),
      historyRow(migration),
      "commit;",
      "",
    );
  }
  return parts.join("\n");
}

function assertVersion(version: number): string {
  return `do $version$
begin
  if (select coalesce(max(version), 0) from holdfast.schema_migrations) <> ${String(version)} then
    raise exception 'the store is not at version ${String(version)}';
  end if;
end
$version$;`;
}
