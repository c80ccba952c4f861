import { type Command, Option } from "commander";
import { suspensionReasons, workStates } from "../wire/work.ts";
import type { CommandContext, ServerFlags } from "./context.ts";
import { limitFlag } from "./flags.ts";
import { at, serverCommand } from "./server-command.ts";

/** Work below `get` and `describe`. */
export function workResources(
  {
    program,
    get,
    describe,
  }: { readonly program: Command; readonly get: Command; readonly describe: Command },
  context: CommandContext,
): void {
  serverCommand(
    get,
    "work [id...]",
    "items of work, newest first",
    ["text", "json", "yaml", "name"],
    [
      ["holdfast get work --state failed --name charge-invoice", "those that failed"],
      ["holdfast get work --reason outcome_unknown", "those of which nobody knows what they did"],
      ["holdfast get work --reason operator -o name | xargs holdfast work release", "for programs"],
    ],
  )
    .addOption(new Option("--state <state>", "in this state").choices(workStates))
    .option("--name <name>", "of this work")
    .option("--version <version>", "of this version")
    .option("--queue <name>", "in this queue")
    .addOption(new Option("--reason <reason>", "suspended for this reason").choices(suspensionReasons))
    .addOption(limitFlag())
    .action(async (ids: string[], flags) =>
      (await import("./work-read.ts")).getWork(context, ids, at(program, flags)),
    );
  serverCommand(
    describe,
    "work <id>",
    "an item of work: what was planned against what happened, as a time line",
    ["text", "json", "yaml"],
    [
      ["holdfast describe work ID", "in words; no payload"],
      ["holdfast describe work ID -o json", "every stored fact but the payload"],
    ],
  ).action(async (id: string, flags: ServerFlags) =>
    (await import("./work-read.ts")).describeWork(context, id, at(program, flags)),
  );
}
