import { setTimeout as delay } from "node:timers/promises";
import { Argument, Command } from "commander";
import { countLeft, type Drain, endDrain, listDrains, startDrain } from "../core/drain.store.ts";
import { countMax, type DrainKind, drainKinds, isDrainKind, leftOf } from "../core/drain.ts";
import type { Database } from "../core/postgres/transition.ts";
import { formatInstant } from "../core/time.ts";
import { type CommandContext, type OutputFormat, printValue } from "./context.ts";
import { UsageError } from "./failures.ts";
import { outputFlag } from "./flags.ts";
import { onInterrupt } from "./interrupt.ts";
import { operatorStore, withOperator } from "./operator.ts";
import { tableText } from "./table.ts";
import { age } from "./time-text.ts";

interface Flags {
  readonly databaseUrl?: string;
  readonly output: OutputFormat;
}

interface DrainFlags extends Flags {
  readonly reason?: string;
  readonly undo: boolean;
  readonly wait: boolean;
}

const lookEveryMs = 1_000;

/** `holdfast drain`: works on the database, as operator and dispatcher, so that it works while nothing else does. */
export function drainCommand(context: CommandContext): Command {
  return databaseCommand("drain [kind...]", "admit nothing new of some kinds while the rest goes on")
    .option("--reason <text>", "told to whoever is refused; kept with your login")
    .option("--undo", "admit them again: the same as `holdfast resume`", false)
    .option("-w, --wait", "until nothing that was admitted is left", false)
    .addHelpText(
      "after",
      `
Kinds: ${drainKinds.join(", ")}; \`all\` is all of them. Without one: what is drained, and what is left.

Examples:
  $ holdfast drain jobs sessions activations --reason "the cluster is upgraded tonight" --wait
  $ holdfast drain                    what is drained, and what is left
  $ holdfast resume all               everything is admitted again`,
    )
    .action((words: string[], flags: DrainFlags) =>
      onStore(context, flags, async (db) => {
        const kinds = kindsOf(words);
        if (flags.undo) await endDrain(db, kinds, flags.reason ?? "none given");
        else if (kinds.length > 0) await drain(context, db, kinds, flags.reason);
        if (flags.wait) await showUntilNothingIsLeft(context, db, flags);
        else await show(context, db, flags);
      }),
    );
}

/** `holdfast resume`: the end of a drain. */
export function resumeCommand(context: CommandContext): Command {
  return databaseCommand("resume <kind...>", "admit drained kinds again")
    .option("--reason <text>", "kept with your login")
    .addHelpText("after", "\nExamples:\n  $ holdfast resume jobs\n  $ holdfast resume all")
    .action((words: string[], flags: Flags & { readonly reason?: string }) =>
      onStore(context, flags, async (db) => {
        await endDrain(db, kindsOf(words), flags.reason ?? "none given");
        await show(context, db, flags);
      }),
    );
}

function databaseCommand(nameAndArguments: string, description: string): Command {
  const [name = "", ...rest] = nameAndArguments.split(" ");
  return new Command(name)
    .description(description)
    .addArgument(new Argument(rest.join(" ")).choices([...drainKinds, "all"]))
    .option(
      "--database-url <url>",
      "the database (or HOLDFAST_DATABASE_URL, else the one of `holdfast dev` here)",
    )
    .addOption(outputFlag("text", "json", "yaml"));
}

function onStore(
  context: CommandContext,
  flags: Flags,
  body: (db: Database) => Promise<void>,
): Promise<void> {
  return withOperator(operatorStore(context, flags.databaseUrl), "holdfast/drain", body);
}

function kindsOf(words: readonly string[]): DrainKind[] {
  if (words.includes("all")) return [...drainKinds];
  return words.filter(isDrainKind);
}

async function drain(
  { terminal }: CommandContext,
  db: Database,
  kinds: readonly DrainKind[],
  reason: string | undefined,
): Promise<void> {
  if (reason === undefined) throw new UsageError("--reason says why: whoever is refused reads it");
  if (await startDrain(db, kinds, reason)) return;
  await terminal.err("warning: a transaction that began before is still open and may admit something yet\n");
}

interface Progress extends Drain {
  readonly left: number;
}

async function look(
  db: Database,
): Promise<{ readonly drains: readonly Progress[]; readonly suspended: number }> {
  const [drains, left] = await Promise.all([listDrains(db), countLeft(db)]);
  return {
    drains: drains.map((one) => ({ ...one, left: leftOf(one.kind, left) })),
    suspended: left.suspended,
  };
}

async function show(context: CommandContext, db: Database, flags: Flags): Promise<boolean> {
  const { drains, suspended } = await look(db);
  if (flags.output !== "text") {
    const view = drains.map(({ kind, left, reason, startedAt, startedBy }) => ({
      kind,
      left,
      reason,
      started_at: formatInstant(startedAt),
      started_by: startedBy,
    }));
    const value = { drains: view, suspended_work: suspended };
    // Again and again with --wait: a line each, or a document each.
    if (flags.output === "json") await context.terminal.out(`${JSON.stringify(value)}\n`);
    else {
      await context.terminal.out("---\n");
      await printValue(context, "yaml", value);
    }
  } else await context.terminal.out(progressText(drains, suspended, context.now()));
  return drains.every(({ left }) => left === 0);
}

function progressText(drains: readonly Progress[], suspended: number, now: number): string {
  if (drains.length === 0) return "Everything is admitted.\n";
  const rows = drains.map(({ kind, left, reason, startedAt, startedBy }) => [
    kind,
    left === countMax ? `${String(left)} or more` : String(left),
    age(formatInstant(startedAt), now),
    startedBy,
    reason,
  ]);
  const table = tableText(["DRAINED", "LEFT", "FOR", "BY", "REASON"], rows);
  const apart = drains.some(({ kind }) => kind === "work") && suspended > 0;
  return apart
    ? `${table}${String(suspended)} suspended items of work wait for somebody, and for no drain.\n`
    : table;
}

/** Ctrl-C ends the looking, not the drain. */
async function showUntilNothingIsLeft(context: CommandContext, db: Database, flags: Flags): Promise<void> {
  const interrupt = onInterrupt();
  try {
    while (!(await show(context, db, flags))) {
      await delay(lookEveryMs, undefined, { signal: interrupt.signal });
    }
  } finally {
    interrupt.stop();
  }
}
