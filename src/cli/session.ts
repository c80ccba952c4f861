import { Command, Option } from "commander";
import type { CommandContext } from "./context.ts";
import { labelFlag, numberFlag } from "./flags.ts";
import { at, serverCommand } from "./server-command.ts";

const several = (text: string, before: readonly string[] = []) => [...before, text];

/** `holdfast session …`. */
export function sessionCommand(context: CommandContext, program: Command): Command {
  const command = new Command("session").description(
    "begin sessions of agents, talk to them, see what they did",
  );
  talking(command, context, program);
  reading(command, context, program);
  changing(command, context, program);
  return command;
}

function talking(command: Command, context: CommandContext, program: Command): void {
  serverCommand(
    command,
    "start <agent>",
    "begin a session; prints its id",
    ["text", "json", "yaml", "name"],
    [
      ["holdfast session start notes", "with the newest version of its template"],
      ["holdfast session start notes --agent-version 2 --label who=me", "with one version of it"],
    ],
  )
    .addOption(numberFlag("--agent-version <number>", "of its template", 1, 999_999_999))
    .addOption(labelFlag())
    .action(async (agent: string, flags) =>
      (await import("./session-change.ts")).start(context, agent, at(program, flags)),
    );
  serverCommand(
    command,
    "fork <session>",
    "begin another session with what this one has committed; prints its id",
    ["text", "json", "yaml", "name"],
    [["holdfast session fork ID --revision 3", "as it was then; without it, as it is now"]],
  )
    .addOption(numberFlag("--revision <number>", "as it was then", 1, 999_999_999))
    .addOption(labelFlag())
    .action(async (id: string, flags) =>
      (await import("./session-change.ts")).fork(context, id, at(program, flags)),
    );
  serverCommand(
    command,
    "send <session> [words...]",
    "say something and follow the turn to its end",
    ["text", "json"],
    [
      ["holdfast session send ID add milk", "what its agent says meanwhile, then its reply; Ctrl-C detaches"],
      ["holdfast session send ID --grant notes.write add milk", "and let its agent do this from now on"],
      ["holdfast session send ID - < letter.txt", "from standard input"],
      [`holdfast session send ID --json '{"text":"hi"}' -o json`, "for programs"],
    ],
  )
    .option("--json <object>", "the whole stimulus, as JSON")
    .option("--id <uuid>", "the same id and words are admitted only once")
    .addOption(
      new Option("--grant <permission>", "grant this first; may be given several times").argParser(several),
    )
    .option("--detach", "do not follow")
    .action(async (id: string, words: string[], flags) =>
      (await import("./session-send.ts")).send(context, id, words, at(program, flags)),
    );
  serverCommand(
    command,
    "grant <session> <permission>",
    "let its agent do something from now on; a turn that waits for this goes on",
    ["text", "json", "yaml", "name"],
    [["holdfast session grant ID notes.write", "until the session is deleted"]],
  ).action(async (id: string, permission: string, flags) =>
    (await import("./session-change.ts")).grant(context, id, permission, at(program, flags)),
  );
  serverCommand(
    command,
    "retry <session> [activation]",
    "run the turn that waits again",
    ["text", "json"],
    [["holdfast session retry ID", "the one that waits"]],
  ).action(async (id: string, activation: string | undefined, flags) =>
    (await import("./session-change.ts")).retry(context, id, activation, at(program, flags)),
  );
  serverCommand(
    command,
    "cancel <session> [activation]",
    "cancel one turn, or all that have not ended",
    ["text", "json"],
    [['holdfast session cancel ID --reason "wrong list"', "a turn that is committed stays"]],
  )
    .option("--reason <text>", "why")
    .action(async (id: string, activation: string | undefined, flags) =>
      (await import("./session-change.ts")).cancel(context, id, activation, at(program, flags)),
    );
}

function reading(command: Command, context: CommandContext, program: Command): void {
  serverCommand(
    command,
    "history <session>",
    "its transcript: every turn, in order",
    ["text", "json", "yaml"],
    [["holdfast session history ID --last 5", "the newest five"]],
  )
    .addOption(numberFlag("--last <number>", "only the newest so many", 1, 100_000))
    .action(async (id: string, flags) =>
      (await import("./session-read.ts")).history(context, id, at(program, flags)),
    );
  serverCommand(
    command,
    "watch <session>",
    "what happens to it, as it happens",
    ["text", "json"],
    [["holdfast session watch ID -o json --after CURSOR", "go on after the last cursor that was printed"]],
  )
    .option("--after <cursor>", "those after this cursor")
    .action(async (id: string, flags) =>
      (await import("./session-read.ts")).watch(context, id, at(program, flags)),
    );
  serverCommand(
    command,
    "download <session>",
    "what it has committed, as one tar archive, verified",
    ["text", "json"],
    [["holdfast session download ID --revision 3 -O notes.tar.zst", "as it was then; tar --zstd unpacks it"]],
  )
    .addOption(numberFlag("--revision <number>", "as it was then", 1, 999_999_999))
    .requiredOption("-O, --output-file <file>", "where to")
    .option("--force", "replace the file when it exists")
    .action(async (id: string, flags) =>
      (await import("./session-read.ts")).download(context, id, at(program, flags)),
    );
}

function changing(command: Command, context: CommandContext, program: Command): void {
  serverCommand(
    command,
    "set <session>",
    "change what is wanted of it",
    ["text", "json", "yaml", "name"],
    [
      ["holdfast session set ID --state suspended", "turns wait until it is active again"],
      ["holdfast session set ID --agent-version 3", "of its agent's template, from the next run on"],
      ["holdfast session set ID --label who=me", "labels"],
    ],
  )
    .addOption(new Option("--state <state>", "desired state").choices(["active", "suspended", "closed"]))
    .addOption(numberFlag("--agent-version <number>", "of its agent's template", 1, 999_999_999))
    .addOption(labelFlag())
    .action(async (id: string, flags) =>
      (await import("./session-change.ts")).set(context, id, at(program, flags)),
    );
  serverCommand(
    command,
    "delete <session>",
    "delete it and its bundles, for good; what was asked and answered stays on record",
    ["text", "json", "name"],
    [["holdfast session delete ID", "a turn that is at work is cancelled"]],
  ).action(async (id: string, flags) =>
    (await import("./session-change.ts")).remove(context, id, at(program, flags)),
  );
}
