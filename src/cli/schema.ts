import { Command } from "commander";
import { HoldfastError } from "../core/errors.ts";
import { connectDirect } from "../core/postgres/direct.ts";
import { applySchema } from "../core/schema/migrate.ts";
import {
  type Migration,
  migrationLabel,
  readMigrations,
  readOnlineSteps,
  readRoles,
  releaseMigrations,
} from "../core/schema/migrations.ts";
import { applyRoles } from "../core/schema/roles.ts";
import { schemaScript } from "../core/schema/script.ts";
import type { SchemaSession } from "../core/schema/session.ts";
import { type SchemaStatus, schemaStatus } from "../core/schema/status.ts";
import { seconds } from "../core/time.ts";

/** What the commands take from their surroundings. */
export interface SchemaCommandContext {
  /** Where `--database-url` isn't given. */
  readonly databaseUrl: string | undefined;
  /** The id that a new store gets; an existing one keeps its own. */
  readonly installation: string | undefined;
  readonly write: (text: string) => void;
}

interface Flags {
  readonly databaseUrl?: string;
  readonly output: "text" | "json";
}

/** `holdfast schema …`: the explicit step that changes the schema, and what can be seen of it (M1, M3, M5). */
export function schemaCommand(context: SchemaCommandContext): Command {
  const command = new Command("schema").description("see and change the database's schema");
  const print = (flags: Flags, value: unknown, text: string) => {
    context.write(flags.output === "json" ? `${JSON.stringify(value, jsonValue, 2)}\n` : text);
  };

  subcommand(command, "status", "which store this is, and whether this release fits it")
    .option("--check", "fail, with the exit code of the reason, when this release may not write", false)
    .action(async (flags: Flags & { readonly check: boolean }) => {
      const status = await withSession(context, flags, statusOf);
      print(flags, summary(status), statusText(status));
      if (flags.check && status.write !== null) throw status.write;
    });

  subcommand(command, "plan", "what `apply` would do").action(async (flags: Flags) => {
    const status = await withSession(context, flags, statusOf);
    if (status.problem !== null) throw status.problem;
    const online = await readOnlineSteps(await releaseMigrations());
    const pending = status.pending.map(migrationLabel);
    print(flags, { pending, online }, lines(pending.length === 0 ? ["nothing to apply"] : pending));
  });

  subcommand(command, "apply", "apply what is missing, as holdfast_owner")
    .option("--lock-timeout <seconds>", "how long to wait for a lock on a table", "10")
    .action(async (flags: Flags & { readonly lockTimeout: string }) => {
      const migrations = await release();
      const result = await withSession(context, flags, (session) =>
        applySchema(session, {
          migrations,
          lockTimeout: seconds(wholeSeconds(flags.lockTimeout)),
          ...(context.installation === undefined ? {} : { installation: context.installation }),
        }),
      );
      const applied = result.applied.map(migrationLabel);
      const text = [
        ...applied.map((label) => `applied ${label}`),
        `schema version ${String(result.version)}`,
      ];
      print(flags, { applied, version: result.version }, lines(text));
    });

  subcommand(command, "roles", "make the roles of the recipe (needs CREATEROLE)")
    .option("--print", "print the recipe instead of running it", false)
    .action(async (flags: Flags & { readonly print: boolean }) => {
      const recipe = await readRoles(await releaseMigrations());
      if (flags.print) return context.write(recipe);
      await withSession(context, flags, (session) => applyRoles(session, recipe));
      print(flags, { applied: true }, "the roles are as the recipe has them\n");
    });

  command
    .command("script")
    .description("print the SQL that `apply` would run, for review")
    .option("--from <version>", "the version that the store has", "0")
    .action(async (flags: { readonly from: string }) => {
      context.write(schemaScript(await release(), { from: wholeNumber(flags.from, "--from") }));
    });
  return command;
}

function subcommand(parent: Command, name: string, description: string): Command {
  return parent
    .command(name)
    .description(description)
    .option("--database-url <url>", "the database (or HOLDFAST_DATABASE_URL)")
    .option("-o, --output <format>", "text or json", outputFormat, "text");
}

function outputFormat(text: string): Flags["output"] {
  if (text === "text" || text === "json") return text;
  throw new HoldfastError("invalid_configuration", "-o is text or json");
}

async function withSession<T>(
  context: SchemaCommandContext,
  flags: Flags,
  body: (session: SchemaSession) => Promise<T>,
): Promise<T> {
  const url = flags.databaseUrl ?? context.databaseUrl;
  if (url === undefined) {
    throw new HoldfastError("invalid_configuration", "give --database-url or set HOLDFAST_DATABASE_URL");
  }
  const client = await connectDirect(url, "holdfast schema");
  try {
    return await body(client);
  } finally {
    await client.end();
  }
}

async function release(): Promise<Migration[]> {
  return readMigrations(await releaseMigrations());
}

async function statusOf(session: SchemaSession): Promise<SchemaStatus> {
  return schemaStatus(session, await release());
}

function summary(status: SchemaStatus): Record<string, unknown> {
  return {
    ...status,
    applied: status.applied.map(({ version, name, checksum }) => ({ version, name, checksum })),
    pending: status.pending.map(migrationLabel),
    problem: reason(status.problem),
    read: reason(status.read),
    write: reason(status.write),
  };
}

function reason(error: HoldfastError | null): Record<string, string> | null {
  return error === null ? null : { code: error.code, detail: error.detail };
}

function statusText({ store, applied, pending, problem, supported, read, write }: SchemaStatus): string {
  const version = applied.at(-1);
  return lines([
    `schema         ${version === undefined ? "none" : migrationLabel(version)}`,
    `this release   understands ${String(supported.minimum)} to ${String(supported.maximum)}`,
    ...(store === null
      ? []
      : [
          `installation   ${store.installationId}`,
          `incarnation    ${store.incarnationId}`,
          `epoch          ${String(store.deploymentEpoch)}`,
          `floors         read ${String(store.readerFloor)}, write ${String(store.writerFloor)}`,
        ]),
    `pending        ${pending.length === 0 ? "none" : pending.map(migrationLabel).join(", ")}`,
    `reading        ${read?.detail ?? "fits"}`,
    `writing        ${write?.detail ?? "fits"}`,
    ...(problem === null ? [] : [`problem        ${problem.detail}`]),
  ]);
}

function lines(text: readonly string[]): string {
  return `${text.join("\n")}\n`;
}

/** JSON has no integers of 64 bits: they travel as decimal strings. */
function jsonValue(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? value.toString() : value;
}

function wholeSeconds(text: string): number {
  return wholeNumber(text, "--lock-timeout");
}

function wholeNumber(text: string, flag: string): number {
  if (/^\d{1,6}$/.test(text)) return Number(text);
  throw new HoldfastError("invalid_configuration", `${flag} is a whole number`);
}
