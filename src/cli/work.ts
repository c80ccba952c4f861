import { Command, Option } from "commander";
import type { CommandContext, ServerFlags } from "./context.ts";
import { numberFlag, pauseFlag } from "./flags.ts";
import { at, serverCommand } from "./server-command.ts";

const oneOf = ["text", "json", "yaml", "name"] as const;

/** `holdfast work …`. */
export function workCommand(context: CommandContext, program: Command): Command {
  const command = new Command("work").description(
    "submit deferred effects, and decide about those that need somebody",
  );
  submitting(command, context, program);
  deciding(command, context, program);
  versions(command, context, program);
  return command;
}

function submitting(command: Command, context: CommandContext, program: Command): void {
  serverCommand(command, "submit <name>", "submit one item of a registered version; prints its id", oneOf, [
    ["holdfast work submit charge-invoice --version 3 --input invoice.json", "its input, as JSON"],
    [
      "echo '{\"cents\":500}' | holdfast work submit charge-invoice --version 3 --input -",
      "from standard input",
    ],
    [
      "holdfast work submit charge-invoice --version 3 --input - --key invoice-7",
      "accepted once, however often",
    ],
  ])
    .requiredOption("--version <version>", "of the work, as its workers registered it")
    .requiredOption("--input <file>", "a file with its input as JSON; `-`: standard input")
    .option("--id <uuid>", "its id")
    .option("--key <key>", "the same key and request resolve to the same item")
    .option("--deadline <instant>", "no attempt begins, and no success counts, from then on (RFC 3339)")
    .addOption(
      pauseFlag(
        "--delay <duration>",
        "eligible only after this pause: 90s, 10m, 1h30m, 2d; a plan of attempts takes none",
      ),
    )
    .option("--queue <name>", "where it waits, when not in its version's own queue")
    .addOption(numberFlag("--priority <number>", "0 is the most urgent", 0, 3))
    .option("--provider-key <key>", "the effect's key at its provider")
    .option("--circuit-key <key>", "items of one key share a circuit breaker")
    .action(async (name: string, flags) =>
      (await import("./work-change.ts")).submit(context, name, at(program, flags)),
    );
  serverCommand(
    command,
    "payload <id>",
    "what was submitted, and what it gave, for those whose token may read it",
    ["json", "yaml"],
    [["holdfast work payload ID", "needs the scope work:payload"]],
  ).action(async (id: string, flags: ServerFlags) =>
    (await import("./work-change.ts")).payload(context, id, at(program, flags)),
  );
}

function deciding(command: Command, context: CommandContext, program: Command): void {
  serverCommand(command, "cancel <id...>", "ask for the end of items; what runs may still succeed", oneOf, [
    ['holdfast work cancel ID --reason "paid by hand"', "the reason is kept with it"],
    ["holdfast get work --state pending -o name | xargs holdfast work cancel", "many"],
  ])
    .option("--reason <text>", "why")
    .action(async (ids: string[], flags) =>
      (await import("./work-change.ts")).cancel(context, ids, at(program, flags)),
    );
  serverCommand(command, "resolve <id>", "settle the last attempt of which nobody knows what it did", oneOf, [
    ['holdfast work resolve ID --verdict applied --note "it is in the bank\'s list"', "it has succeeded"],
    ['holdfast work resolve ID --verdict not_applied --note "the bank has nothing"', "it may be tried again"],
  ])
    .addOption(
      new Option("--verdict <verdict>", "whether the effect has happened")
        .choices(["applied", "not_applied"])
        .makeOptionMandatory(),
    )
    .requiredOption("--note <text>", "how you know; kept with your name")
    .addOption(numberFlag("--attempt <number>", "only if it is this attempt that is in question", 1, 256))
    .option("--result <file>", "what it would have given, as JSON; `-`: standard input")
    .action(async (id: string, flags) =>
      (await import("./work-change.ts")).resolve(context, id, at(program, flags)),
    );
  for (const [verb, description, example] of [
    ["release", "put suspended items back, to their own time", "never past their cutoff"],
    ["requeue", "put suspended items back, due at once where no plan says when", "never past their cutoff"],
    ["suspend", "take waiting items out of their line", "until they are released or requeued"],
  ] as const) {
    serverCommand(command, `${verb} <id...>`, description, oneOf, [
      [`holdfast work ${verb} ID`, example],
    ]).action(async (ids: string[], flags: ServerFlags) =>
      (await import("./work-change.ts")).change(context, verb, ids, at(program, flags)),
    );
  }
}

function versions(command: Command, context: CommandContext, program: Command): void {
  serverCommand(
    command,
    "versions [name]",
    "registered versions, who runs each, and what waits for a worker",
    ["text", "json", "yaml"],
    [
      ["holdfast work versions", "all of them"],
      ["holdfast work versions charge-invoice -o json", "of one name, for programs"],
    ],
  ).action(async (name: string | undefined, flags: ServerFlags) =>
    (await import("./work-read.ts")).listVersions(context, name, at(program, flags)),
  );
  serverCommand(
    command,
    "retire <name> <version>",
    "accept nothing new under a version; what is there drains",
    ["text", "json", "yaml"],
    [["holdfast work retire charge-invoice 2", "for operators of the installation; never taken back"]],
  ).action(async (name: string, version: string, flags: ServerFlags) =>
    (await import("./work-change.ts")).retire(context, name, version, at(program, flags)),
  );
}

/** `holdfast tenant …`. */
export function tenantCommand(context: CommandContext, program: Command): Command {
  const command = new Command("tenant").description("what operators of the installation do about a tenant");
  serverCommand(
    command,
    "disable <name>",
    "disable a tenant for good: its tokens are dead, what waits of it is suspended",
    ["text", "json", "yaml"],
    [["holdfast tenant disable acme --confirm acme", "never taken back"]],
  )
    .requiredOption("--confirm <name>", "its name once more")
    .action(async (name: string, flags) =>
      (await import("./work-change.ts")).disableTenant(context, name, at(program, flags)),
    );
  return command;
}
