import { catalogueQuery, expectedObjects, type MigrationEffect } from "./catalogue.ts";
import { historyRow, historyTable } from "./history.ts";
import { ownerPrelude } from "./migrate.ts";
import { type Migration, migrationLabel } from "./migrations.ts";
import { aroundStep, type OnlineStep, touchedBy } from "./online.ts";
import { migrationLock } from "./turn.ts";

export interface ScriptOptions {
  readonly from?: number;
  readonly effects?: readonly MigrationEffect[];
  /**
   * Printed after the migrations. What they have to do with is left out of the migrations' checks: the script can't
   * know which of them have been run.
   */
  readonly steps?: readonly OnlineStep[];
}

/**
 * What `applySchema` would run, as SQL for review and for those who apply by their own tools (M3). The same
 * migrations give the same bytes. It makes the checks that apply makes: server and owner; the lock that whoever
 * applies takes; each transaction refuses a store that isn't exactly at the version before it or has other bytes, so
 * running the script twice, or from the wrong version, changes nothing; and, given what the migrations make, the
 * catalogue before the first and inside the last. The online steps come last, each with the record of it and refused
 * where it is done.
 */
export function schemaScript(migrations: readonly Migration[], options: ScriptOptions = {}): string {
  const from = options.from ?? 0;
  const pending = migrations.filter((migration) => migration.version > from);
  const last = pending.at(-1)?.version ?? from;
  const parts = [
    `-- Holdfast schema, version ${String(from)} to ${String(last)}.`,
    "-- Run it as a login that may SET ROLE holdfast_owner, after roles.sql, and stop at the first error:",
    "--   psql --no-psqlrc --set ON_ERROR_STOP=1 --file THIS",
    "-- Through a direct connection: the lock belongs to the session, and whoever else applies waits for it.",
    "",
    assertServer,
    `select pg_catalog.pg_advisory_lock(${String(migrationLock)});`,
    "",
  ];
  if (from === 0) parts.push("begin;", limits, ownerPrelude, historyTable, "commit;", "");
  else parts.push(...assertBefore(migrations.slice(0, from), options));
  for (const migration of pending) {
    const label = migrationLabel(migration);
    parts.push(
      `-- ${label}  sha256 ${migration.checksum}`,
      "begin;",
      limits,
      ownerPrelude,
      assertVersion(migration.version - 1),
      migration.sql.trimEnd(),
      historyRow(migration),
      ...(migration.version === last ? assertObjects(migrations.slice(0, last), options) : []),
      "commit;",
      "",
    );
  }
  parts.push(...onlineSteps(options.steps ?? [], last));
  parts.push(`select pg_catalog.pg_advisory_unlock(${String(migrationLock)});`, "");
  return parts.join("\n");
}

const assertServer = `do $server$
begin
  if current_setting('server_version_num')::int4 < 170000 then
    raise exception 'the server is older than PostgreSQL 17';
  end if;
end
$server$;`;

/** As apply has them: what waits for a table's lock longer than this holds up everybody behind it. */
const limits =
  "set local statement_timeout = 0;\nset local transaction_timeout = 0;\nset local lock_timeout = '10s';";

function assertVersion(version: number): string {
  return `do $version$
begin
  if (select coalesce(max(version), 0) from holdfast.schema_migrations) <> ${String(version)} then
    raise exception 'the store is not at version ${String(version)}';
  end if;
end
$version$;`;
}

function onlineSteps(steps: readonly OnlineStep[], version: number): string[] {
  const own = steps.filter(({ after }) => after <= version);
  if (own.length === 0) return [];
  return [
    "-- Online steps: what PostgreSQL can't run in a transaction. Each statement has to be sent by itself and outside of",
    "-- one (psql without --single-transaction does), while everything goes on; each step may wait until later. The script",
    "-- can't know which are done: leave out those that `holdfast schema status` doesn't name, or it stops at them. One that",
    "-- was interrupted begins again.",
    "set role holdfast_owner;",
    "set search_path = '';",
    "set statement_timeout = 0;",
    "set lock_timeout = '1h';",
    assertVersion(version),
    "",
    ...own.flatMap(onlineStep),
    "reset lock_timeout;",
    "reset statement_timeout;",
    "reset search_path;",
    "reset role;",
    "",
  ];
}

function onlineStep(step: OnlineStep): string[] {
  const { lock, begun, done, unlock } = aroundStep(step);
  return [
    `-- Online, outside a transaction: ${step.name}  sha256 ${step.checksum}`,
    `do $step$
begin
  if exists (select from holdfast.schema_online_steps where name = '${step.name}' and finished_at is not null) then
    raise exception 'the online step ${step.name} is done: leave it out';
  end if;
end
$step$;`,
    lock,
    begun,
    ...step.statements.map((statement) => (statement.endsWith(";") ? statement : `${statement}\n;`)),
    ...(step.makes === null
      ? []
      : assertLines([
          ...Object.entries(step.makes.objects),
          ...step.makes.removed.map((object): [string, null] => [object, null]),
        ])),
    done,
    unlock,
    "",
  ];
}

function assertBefore(applied: readonly Migration[], options: ScriptOptions): string[] {
  const rows = applied
    .map(({ version, name, checksum }) => `      (${String(version)}, '${name}', '${checksum}')`)
    .join(",\n");
  return [
    "-- The store has what this script goes on from.",
    "begin;",
    limits,
    ownerPrelude,
    assertVersion(applied.length),
    `do $history$
begin
  if exists (
    select from (values
${rows}
    ) as release (version, name, checksum)
    where not exists (
      select from holdfast.schema_migrations m
      where (m.version, m.name, m.checksum) = (release.version, release.name, release.checksum))
  ) then
    raise exception 'a migration was applied with other bytes';
  end if;
end
$history$;`,
    ...assertObjects(applied, options),
    "commit;",
    "",
  ];
}

/** Nothing when it isn't known what these migrations make. */
function assertObjects(migrations: readonly Migration[], { effects, steps = [] }: ScriptOptions): string[] {
  const expected = effects === undefined ? null : expectedObjects(effects, migrations);
  if (expected === null) return [];
  const touched = new Set(steps.flatMap(touchedBy));
  return assertLines([...expected].filter(([object]) => !touched.has(object)));
}

/** Each object as its hash has it; null: there is none of that name. */
function assertLines(objects: readonly (readonly [object: string, hash: string | null])[]): string[] {
  const rows = objects
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([object, hash]) => [object.replaceAll("'", "''"), hash === null ? "null::text" : `'${hash}'`])
    .map(([object, hash]) => `      ('${object}', ${hash})`)
    .join(",\n");
  return [
    `do $catalogue$
declare
  wrong text;
begin
  with found as materialized (
${catalogueQuery}
  )
  select string_agg(expected.object, ', ' order by expected.object collate "C") into wrong
  from (values
${rows}
    ) as expected (object, hash)
  where (expected.hash is null) = exists (
    select from found
    where found.object = expected.object
      and (expected.hash is null
        or expected.hash = substr(encode(sha256(convert_to(found.line, 'UTF8')), 'hex'), 1, 16)));
  if wrong is not null then
    raise exception 'missing, or other than migrations make them: %', wrong;
  end if;
end
$catalogue$;`,
  ];
}
