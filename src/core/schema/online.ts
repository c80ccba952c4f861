import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { HoldfastError } from "../errors.ts";
import { sqlstateOf } from "../postgres/sqlstate.ts";
import { type Microseconds, seconds, toMilliseconds } from "../time.ts";
import { catalogueLines, lineHash, type OnlineEffect, readOnlineEffects } from "./catalogue.ts";
import { isMissing, readHistory } from "./history.ts";
import { migrationFile } from "./migrations.ts";
import { rowsOf, type SchemaSession } from "./session.ts";
import { assertMayChange, inTurn } from "./turn.ts";

/**
 * What PostgreSQL can't run in a transaction, such as building an index while rows are written. The number in its
 * name is the migration that it follows. A file has statements with a line `-- then` between them, each run by
 * itself, and has to be right when it is run again from its beginning: it first clears what an interrupted run left.
 */
export interface OnlineStep {
  /** The file's name without its extension. */
  readonly name: string;
  readonly after: number;
  readonly statements: readonly string[];
  readonly checksum: string;
  /** What it makes (`catalogue.json`); null when that was not written from its very bytes. */
  readonly makes: OnlineEffect | null;
}

export interface OnlineState {
  readonly name: string;
  /** `running`: a session is at it. `interrupted`: it was begun, and has to be run again. */
  readonly state: "pending" | "running" | "interrupted" | "done";
  /** The objects that it adds, changes or removes; null when it is not known. */
  readonly objects: readonly string[] | null;
}

/** The objects that a step has to do with. */
export function touchedBy({ makes }: OnlineStep): readonly string[] {
  return makes === null ? [] : [...Object.keys(makes.objects), ...makes.removed];
}

export async function readOnlineSteps(directory: string): Promise<OnlineStep[]> {
  const folder = join(directory, "online");
  const names: string[] = await readdir(folder).catch(() => []);
  const effects = await readOnlineEffects(directory);
  return Promise.all(
    names
      .filter((name) => migrationFile.test(name))
      .sort()
      .map(async (file) => {
        const text = await readFile(join(folder, file), "utf8");
        const name = file.replace(/\.sql$/, "");
        const checksum = createHash("sha256").update(text).digest("hex");
        const effect = effects.find((one) => one.name === name);
        return {
          name,
          after: Number(file.slice(0, 4)),
          statements: text.split(/^-- then$/m).map((statement) => statement.trim()),
          checksum,
          makes: effect?.checksum === checksum ? effect : null,
        };
      }),
  );
}

/** What is done of the steps and what is left, under whatever role can see the history. */
export async function onlineStates(
  session: SchemaSession,
  steps: readonly OnlineStep[],
): Promise<OnlineState[]> {
  const before = await runningSteps(session, steps);
  const rows = await recorded(session);
  // Of one that began between the two looks, only a third one says that somebody is at it.
  const unclear = rows.some(({ name, finished }) => !finished && !before.has(name));
  const running = unclear ? new Set([...before, ...(await runningSteps(session, steps))]) : before;
  return steps.map((step) => {
    const { name, checksum } = step;
    const objects = step.makes === null ? null : touchedBy(step);
    const row = rows.find((one) => one.name === name);
    if (row === undefined) return { name, state: "pending", objects };
    if (row.finished && row.checksum !== checksum) {
      throw new HoldfastError("schema_drift", `the online step ${name} was run with other bytes`);
    }
    const left = running.has(name) ? "running" : "interrupted";
    return { name, state: row.finished ? "done" : left, objects };
  });
}

/** Those whose lock a session of this database has. Every role sees locks. */
async function runningSteps(
  session: SchemaSession,
  steps: readonly OnlineStep[],
): Promise<ReadonlySet<string>> {
  if (steps.length === 0) return new Set();
  const held = await rowsOf<{ place: number }>(
    session,
    `select step.place::int4 as place
     from (values ${steps.map((step, place) => `(${String(place)}, ${stepKey(step)})`).join(", ")}) as step (place, key)
     where exists (select from pg_catalog.pg_locks l
       where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
         and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
         and (l.classid::int8 << 32) | l.objid::int8 = step.key)`,
  );
  return new Set(held.flatMap(({ place }) => steps[place]?.name ?? []));
}

const stepKey = ({ name }: Pick<OnlineStep, "name">) =>
  `pg_catalog.hashtextextended('holdfast online step ${name}', 0)`;

/**
 * What stands around a step's statements, here and in the script: the lock of the session by which others see that it
 * runs, and the record that it began and is done.
 */
export function aroundStep(step: Pick<OnlineStep, "name" | "checksum">) {
  const { name, checksum } = step;
  return {
    lock: `select pg_catalog.pg_advisory_lock(${stepKey(step)});`,
    begun: `insert into holdfast.schema_online_steps as s (name, checksum) values ('${name}', '${checksum}')
on conflict (name) do update set checksum = excluded.checksum, tries = s.tries + 1;`,
    done: `update holdfast.schema_online_steps set finished_at = pg_catalog.clock_timestamp() where name = '${name}';`,
    unlock: `select pg_catalog.pg_advisory_unlock(${stepKey(step)});`,
  };
}

async function recorded(session: SchemaSession) {
  try {
    return await rowsOf<{ name: string; checksum: string; finished: boolean }>(
      session,
      "select name, checksum, finished_at is not null as finished from holdfast.schema_online_steps",
    );
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

/**
 * Run what is left of the steps, in order, as `holdfast_owner` and outside transactions. One that was interrupted
 * begins again. Each is recorded before it begins and when it is done, so running this again changes nothing.
 *
 * Throws `owner_required`, `schema_busy`, `schema_drift`, `conflict` or `migration_failed`.
 */
export async function runOnlineSteps(
  session: SchemaSession,
  options: {
    readonly steps: readonly OnlineStep[];
    /** The migrations of the release: all have to be applied first. */
    readonly version: number;
    readonly turnTimeout?: Microseconds;
    /** These locks let others read and write, so waiting long for one disturbs nobody. */
    readonly lockTimeout?: Microseconds;
    /** Called after each, with the search path that steps run under. */
    readonly onDone?: (step: OnlineStep) => Promise<void> | void;
  },
): Promise<readonly OnlineStep[]> {
  await assertMayChange(session);
  return inTurn(session, options.turnTimeout ?? seconds(300), async () => {
    try {
      await session.query("set role holdfast_owner");
      await session.query("set search_path = ''");
      await session.query("set statement_timeout = 0");
      const timeout = toMilliseconds(options.lockTimeout ?? seconds(3_600));
      await session.query(`set lock_timeout = ${String(timeout)}`);
      const history = (await readHistory(session)) ?? [];
      if (history.length < options.version) {
        throw new HoldfastError("conflict", "migrations are missing: `holdfast schema apply` comes first");
      }
      const states = await onlineStates(session, options.steps);
      const left = options.steps.filter((_, place) => states[place]?.state !== "done");
      // A store that is ahead of this release may have made something else of the same objects since.
      const known = history.length === options.version;
      for (const step of left) {
        await runStep(session, step, known ? step.makes : null);
        await options.onDone?.(step);
      }
      return left;
    } finally {
      for (const name of ["role", "search_path", "statement_timeout", "lock_timeout"]) {
        await session.query(`reset ${name}`).catch(() => undefined);
      }
    }
  });
}

async function runStep(session: SchemaSession, step: OnlineStep, makes: OnlineEffect | null): Promise<void> {
  const { lock, begun, done, unlock } = aroundStep(step);
  await session.query(lock);
  try {
    await session.query(begun);
    await runStatements(session, step);
    if (makes !== null) await assertStepMade(session, makes);
    await session.query(done);
  } finally {
    // A dead connection has let go of it already.
    await session.query(unlock).catch(() => undefined);
  }
}

async function runStatements(session: SchemaSession, { name, statements }: OnlineStep): Promise<void> {
  for (const [place, statement] of statements.entries()) {
    try {
      await session.query(statement);
    } catch (error) {
      const state = sqlstateOf(error);
      if (state === undefined || !(error instanceof Error)) throw error;
      const detail = `online step ${name}, statement ${String(place + 1)}: ${error.message} (${state})`;
      throw new HoldfastError(state === "55P03" ? "schema_busy" : "migration_failed", detail, {
        cause: error,
      });
    }
  }
}

async function assertStepMade(
  session: SchemaSession,
  { name, objects, removed }: OnlineEffect,
): Promise<void> {
  const found = await catalogueLines(session);
  const wrong = [
    ...Object.entries(objects)
      .filter(([object, hash]) => lineHash(found.get(object) ?? "") !== hash)
      .map(([object]) => `${object} is ${found.has(object) ? "another" : "missing"}`),
    ...removed.filter((object) => found.has(object)).map((object) => `${object} is still there`),
  ];
  if (wrong.length === 0) return;
  throw new HoldfastError("migration_failed", `after the online step ${name}: ${wrong.join(", ")}`);
}
