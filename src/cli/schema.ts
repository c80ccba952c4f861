import { Command } from "commander";
import { rotateDeployment } from "../core/deployment.store.ts";
import { HoldfastError } from "../core/errors.ts";
import { connectDirect } from "../core/postgres/direct.ts";
import type { ConnectionSettings } from "../core/postgres/pool.ts";
import { sqlstateOf } from "../core/postgres/sqlstate.ts";
import { type MigrationEffect, readCatalogue } from "../core/schema/catalogue.ts";
import { assertInstallation } from "../core/schema/compatibility.ts";
import { applySchema } from "../core/schema/migrate.ts";
import {
  type Migration,
  migrationLabel,
  readMigrations,
  readRoles,
  releaseMigrations,
} from "../core/schema/migrations.ts";
import { type OnlineStep, readOnlineSteps, runOnlineSteps } from "../core/schema/online.ts";
import { schemaPlan } from "../core/schema/plan.ts";
import { applyRoles } from "../core/schema/roles.ts";
import { schemaScript } from "../core/schema/script.ts";
import type { SchemaSession } from "../core/schema/session.ts";
import { schemaStatus, takeLookingRole } from "../core/schema/status.ts";
import { verifySchema } from "../core/schema/verify.ts";
import { seconds } from "../core/time.ts";
import { namedDatabase, noDatabase } from "./database.ts";
import { outputFlag } from "./flags.ts";
import { withOperator } from "./operator.ts";
import {
  lines,
  planText,
  statusText,
  statusView,
  verificationFailure,
  verificationText,
} from "./schema-text.ts";

/** What the commands take from their surroundings. */
export interface SchemaCommandContext {
  /** Where `--database-url` isn't given. */
  readonly database: ConnectionSettings | undefined;
  /** Where that isn't named either: what only looks takes the development store that runs here. */
  readonly running?: () => ConnectionSettings | null;
  /** The id that a new store gets; one that has another is refused. */
  readonly installation: string | undefined;
  readonly write: (text: string) => void;
  /** Where the migrations are; a test's own, or the release's. */
  readonly directory?: string;
}

interface Flags {
  readonly databaseUrl?: string;
  readonly output: "text" | "json" | "yaml";
}

interface Release {
  readonly migrations: readonly Migration[];
  readonly effects: readonly MigrationEffect[];
  readonly steps: readonly OnlineStep[];
}

/** `holdfast schema …`: the explicit step that changes the schema, and what can be seen of it (M1, M3, M5). */
export function schemaCommand(context: SchemaCommandContext): Command {
  const command = new Command("schema").description("see and change the database's schema");
  const print = async (flags: Flags, value: unknown, text: string) => {
    if (flags.output === "text") return context.write(text);
    const json = JSON.stringify(value, jsonValue, 2);
    if (flags.output === "json") return context.write(`${json}\n`);
    const { stringify } = await import("yaml");
    context.write(stringify(JSON.parse(json)));
  };
  const directory = async () => context.directory ?? (await releaseMigrations());
  const release = async (): Promise<Release> => {
    const folder = await directory();
    const [migrations, effects, steps] = await Promise.all([
      readMigrations(folder),
      readCatalogue(folder),
      readOnlineSteps(folder),
    ]);
    return { migrations, effects, steps };
  };
  const looking = <T>(flags: Flags, body: (session: SchemaSession) => Promise<T>) =>
    withSession(lookedAt(context, flags), async (session) => {
      await takeLookingRole(session);
      await assertInstallation(session, context.installation);
      return body(session);
    });
  const changing = <T>(flags: Flags, body: (session: SchemaSession) => Promise<T>) =>
    withSession(changed(context, flags), async (session) => {
      await takeLookingRole(session);
      await assertInstallation(session, context.installation);
      await session.query("reset role");
      return body(session);
    });
  const look = (flags: Flags, { migrations, steps }: Release) =>
    looking(flags, (session) => schemaStatus(session, migrations, { steps }));

  subcommand(command, "status", "which store this is, who uses it, and whether this release fits it", [
    ["holdfast schema status", "with the login of any process"],
    ["holdfast schema status --check && …", "only when this release may write"],
  ])
    .option("--check", "fail, with the exit code of the reason, when this release may not write", false)
    .action(async (flags: Flags & { readonly check: boolean }) => {
      const status = await look(flags, await release());
      await print(flags, statusView(status), statusText(status));
      if (flags.check && status.write !== null) throw status.write;
    });

  subcommand(command, "plan", "what `apply` would do, what it locks, and what has to be stopped first", [
    ["holdfast schema plan -o json", "for programs"],
  ]).action(async (flags: Flags) => {
    const own = await release();
    const status = await look(flags, own);
    if (status.problem !== null) throw status.problem;
    const plan = schemaPlan(status, own.effects);
    await print(flags, plan, planText(plan));
  });

  subcommand(command, "apply", "apply what is missing, as holdfast_owner", [
    ["holdfast schema apply", "again changes nothing; after a broken connection it goes on"],
    ["holdfast schema apply --online", "then what can't run in a transaction, while everything goes on"],
  ])
    .option("--lock-timeout <seconds>", "how long to wait for a lock on a table", "10")
    .option("--online", "run the online steps that are left", false)
    .action(async (flags: Flags & { readonly lockTimeout: string; readonly online: boolean }) => {
      const { migrations, effects, steps } = await release();
      if (flags.online) {
        const run = await changing(flags, (session) =>
          runOnlineSteps(session, { steps, version: migrations.length }),
        );
        const done = run.map(({ name }) => name);
        return print(
          flags,
          { online: done },
          lines(done.length === 0 ? ["nothing to run"] : done.map((name) => `ran ${name}`)),
        );
      }
      const lockTimeout = seconds(wholeNumber(flags.lockTimeout, "--lock-timeout"));
      const result = await changing(flags, (session) =>
        applySchema(session, {
          migrations,
          effects,
          steps,
          lockTimeout,
          ...(context.installation === undefined ? {} : { installation: context.installation }),
        }),
      );
      const applied = result.applied.map(migrationLabel);
      const text = [
        ...applied.map((label) => `applied ${label}`),
        `schema version ${String(result.version)}`,
      ];
      await print(flags, { applied, version: result.version }, lines(text));
    });

  subcommand(command, "verify", "compare checksums and catalogue with what a fresh install has", [
    ["holdfast schema verify", "one digest: the same on a fresh and on an upgraded store"],
  ]).action(async (flags: Flags) => {
    const { migrations, effects, steps } = await release();
    const found = await looking(flags, (session) => verifySchema(session, migrations, effects, steps));
    await print(flags, found, verificationText(found));
    const failure = verificationFailure(found);
    if (failure !== null) throw failure;
  });

  subcommand(command, "roles", "make the roles of the recipe (needs CREATEROLE)", [
    ["holdfast schema roles", "once for each database; again changes nothing"],
    ["holdfast schema roles --print", "the SQL, for somebody who may run it"],
  ])
    .option("--print", "print the recipe instead of running it", false)
    .action(async (flags: Flags & { readonly print: boolean }) => {
      const recipe = await readRoles(await directory());
      if (flags.print) return context.write(recipe);
      await withSession(changed(context, flags), (session) => applyRoles(session, recipe));
      await print(flags, { applied: true }, "the roles are as the recipe has them\n");
    });

  subcommand(
    command,
    "rotate-epoch",
    "begin the next deployment epoch: older processes commit nothing more",
    [
      [
        'holdfast schema rotate-epoch --from 3 --reason "node-7 is unreachable"',
        "when all have been stopped",
      ],
      ["holdfast schema rotate-epoch --from 3 --reason … --cut-off", "also while some are alive"],
    ],
  )
    .requiredOption("--from <epoch>", "the epoch that you saw: another one changes nothing")
    .requiredOption("--reason <text>", "why; kept with your login")
    .option("--cut-off", "also when processes of it are alive", false)
    .action(
      async (flags: Flags & { readonly from: string; readonly reason: string; readonly cutOff: boolean }) => {
        const rotation = {
          from: BigInt(wholeNumber(flags.from, "--from")),
          reason: flags.reason,
          cutOff: flags.cutOff,
        };
        const store = { settings: changed(context, flags), installation: context.installation };
        const { epoch, settled } = await withOperator(store, "holdfast/schema", (db) =>
          rotateDeployment(db, rotation),
        );
        const text = [`deployment epoch ${String(epoch)}`];
        if (!settled) text.push("a transaction that began before is still open: look again");
        await print(flags, { epoch, settled }, lines(text));
      },
    );

  command
    .command("script")
    .description("print the SQL that `apply` would run, with its checks, for review")
    .option("--from <version>", "the version that the store has", "0")
    .addHelpText("after", examples([["holdfast schema script --from 11", "from there to this release"]]))
    .action(async (flags: { readonly from: string }) => {
      const { migrations, effects, steps } = await release();
      context.write(schemaScript(migrations, { from: wholeNumber(flags.from, "--from"), effects, steps }));
    });
  return command;
}

function subcommand(
  parent: Command,
  name: string,
  description: string,
  shown: readonly (readonly [command: string, meaning: string])[],
): Command {
  return parent
    .command(name)
    .description(description)
    .option(
      "--database-url <url>",
      "the database (or HOLDFAST_DATABASE_URL; to look at, else the one of `holdfast dev` here)",
    )
    .addOption(outputFlag("text", "json", "yaml"))
    .addHelpText("after", examples(shown));
}

function examples(shown: readonly (readonly [command: string, meaning: string])[]): string {
  const width = Math.max(...shown.map(([command]) => command.length));
  return `\nExamples:\n${shown.map(([command, meaning]) => `  $ ${command.padEnd(width)}   ${meaning}`).join("\n")}`;
}

function lookedAt(context: SchemaCommandContext, flags: Flags): ConnectionSettings {
  const found = named(context, flags) ?? context.running?.();
  if (found !== undefined && found !== null) return found;
  throw noDatabase("and no development store runs in this checkout (`holdfast dev`)");
}

/** Changing some store that happens to run here would be worse than a question. */
function changed(context: SchemaCommandContext, flags: Flags): ConnectionSettings {
  const found = named(context, flags);
  if (found !== undefined) return found;
  throw noDatabase("and a development store is brought up to date by `holdfast dev` alone");
}

function named({ database }: SchemaCommandContext, flags: Flags): ConnectionSettings | undefined {
  return flags.databaseUrl === undefined ? database : namedDatabase(flags.databaseUrl);
}

async function withSession<T>(
  settings: ConnectionSettings,
  body: (session: SchemaSession) => Promise<T>,
): Promise<T> {
  const client = await connectDirect(settings, "holdfast schema");
  try {
    return await body(client);
  } catch (error) {
    if (sqlstateOf(error) !== "42501" || !(error instanceof Error)) throw error;
    throw new HoldfastError("owner_required", `this login may not do that: ${error.message}`, {
      cause: error,
    });
  } finally {
    await client.end();
  }
}

/** JSON has no integers of 64 bits: they travel as decimal strings. */
function jsonValue(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? value.toString() : value;
}

function wholeNumber(text: string, flag: string): number {
  if (/^\d{1,6}$/.test(text)) return Number(text);
  throw new HoldfastError("invalid_configuration", `${flag} is a whole number`);
}
